"""The promotion gate for people: named conditions, a table for the terminal, a page for the run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from textwrap import fill

from harr.report.html import render


@dataclass(frozen=True, slots=True)
class Condition:
    """A requirement for a candidate to become champion: what was found and what is needed."""

    name: str
    found: str
    needed: str
    passed: bool


def failures(conditions: Sequence[Condition]) -> str:
    """Return the conditions that do not hold, in one line; "" if all do.

    >>> failures([Condition("questions", "32", "at least 100", False), Condition("index", "a1", "a1", True)])
    'questions: found 32, needed at least 100'
    """
    return "; ".join(f"{c.name}: found {c.found}, needed {c.needed}" for c in conditions if not c.passed)


def table(conditions: Sequence[Condition], width: int) -> str:
    """Return the conditions as plain text of at most ``width`` columns, each with what was found and needed.

    >>> print(table([Condition("questions", "32", "at least 100", False)], 20))
    NO   questions: 32,
         needed at least
         100
    """
    lines = [f"{'yes' if c.passed else 'NO':<3}  {c.name}: {c.found}, needed {c.needed}" for c in conditions]
    return "\n".join(fill(line, width, subsequent_indent=" " * 5, break_on_hyphens=False) for line in lines)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The gate's verdict on a candidate.

    Args:
        name: name of the registered model.
        version: the candidate's number.
        against: text naming the version or arm it was compared with.
        conditions: all of them, including those that hold.
        gains: paired gains per metric, as from ``evaluate.contrast``.
        facts: further names and values, such as fingerprints.
        level: level of the intervals, in per cent.
    """

    name: str
    version: str
    against: str
    conditions: tuple[Condition, ...]
    gains: Mapping[str, Mapping[str, float]]
    facts: Mapping[str, str]
    level: str = "95"

    @property
    def refusal(self) -> str:
        """Return why the candidate is refused, in one line; "" if it may become champion."""
        missed = failures(self.conditions)
        return f"version {self.version} of {self.name} against {self.against}: {missed}" if missed else ""

    @property
    def page(self) -> str:
        """Return the verdict as one HTML page; every text is escaped and nothing is loaded from elsewhere."""
        from harr.evaluate.tables import label, with_interval

        rows = [
            (label(name), with_interval(name, gain, "gain"), int(gain["n"]), "up" if gain["low"] > 0 else "level")
            for name, gain in self.gains.items()
        ]
        return render(
            "promotion.html.j2",
            conditions=self.conditions,
            passed=not self.refusal,
            model=self.name,
            version=self.version,
            against=self.against,
            gains=rows,
            facts=self.facts,
            level=self.level,
        )
