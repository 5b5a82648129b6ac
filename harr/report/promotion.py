"""The promotion gate as a person reads it: named conditions, a table for the terminal, a page for the run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

TEMPLATE = "promotion.html.j2"


@dataclass(frozen=True, slots=True)
class Condition:
    """One thing that must hold before a candidate becomes champion: what was found, and what is needed."""

    name: str
    found: str
    needed: str
    passed: bool


def failures(conditions: Sequence[Condition]) -> str:
    """Return the conditions that do not hold, in one line; empty where all do.

    >>> failures([Condition("questions", "32", "at least 100", False), Condition("index", "a1", "a1", True)])
    'questions: found 32, needed at least 100'
    """
    return "; ".join(f"{c.name}: found {c.found}, needed {c.needed}" for c in conditions if not c.passed)


def table(conditions: Sequence[Condition]) -> str:
    """Return the conditions as plain text, a line each.

    >>> print(table([Condition("questions", "32", "at least 100", False)]))
    condition  found  needed        verdict
    questions  32     at least 100  NO
    """
    grid = [["condition", "found", "needed", "verdict"]]
    grid += [[c.name, c.found, c.needed, "yes" if c.passed else "NO"] for c in conditions]
    widths = [max(map(len, column)) for column in zip(*grid, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in grid
    )


def page(
    conditions: Sequence[Condition],
    *,
    model: str,
    version: str,
    against: str,
    gains: Mapping[str, Mapping[str, float]],
    facts: Mapping[str, str],
) -> str:
    """Return the gate as one HTML page; every text is escaped and nothing is loaded from elsewhere.

    Args:
        conditions: all of them, also those that hold.
        model: name of the registered model.
        version: number of the candidate.
        against: whom it was compared with, in words.
        gains: paired gains per metric, as from ``evaluate.contrast``.
        facts: further names and values, such as fingerprints.
    """
    from harr.evaluate.tables import label

    rows = [
        (label(name), _gain(name, gain), f"{gain['p']:.2g}", int(gain["n"]), "up" if gain["low"] > 0 else "level")
        for name, gain in gains.items()
    ]
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    return environment.get_template(TEMPLATE).render(
        conditions=conditions,
        passed=not failures(conditions),
        model=model,
        version=version,
        against=against,
        gains=rows,
        facts=facts,
    )


def _gain(name: str, gain: Mapping[str, float]) -> str:
    """Return a gain with its interval: points where the metric is a share, else the plain number."""
    from harr.evaluate.tables import is_share, spread

    if is_share(name):
        return spread(gain, "gain", "+.1f")
    return f"{gain['gain']:+.2f} [{gain['low']:+.2f}, {gain['high']:+.2f}]"
