"""What changed: the parameters of this run and of the champion that differ, and the figures on the same questions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harr.evaluate.summary import contrast
from harr.evaluate.tables import is_share, label, percent, plain, spread
from harr.report.arms_table import METRICS, sign

Row = dict[str, Any]
MOST = 6
"""Metrics that are shown."""


@dataclass(frozen=True, slots=True)
class Champion:
    """The registered version that is used today: its name, the parameters of its run, and its rows of ``trained``."""

    version: str
    params: Mapping[str, str]
    rows: Sequence[Row]


def changes(
    champion: Champion | None, params: Mapping[str, str], rows: Sequence[Row], *, resamples: int, seed: int
) -> dict[str, Any]:
    """Return what this run and the champion differ in; {} without a champion.

    Questions are paired by id where words and gold answers are the same.

    Args:
        champion: the version to compare with.
        params: flat parameters of this run, as text.
        rows: question rows of the first run of ``trained``.
        resamples: number of bootstrap draws.
        seed: that of these draws.
    """
    if champion is None:
        return {}
    names = dict.fromkeys([*params, *champion.params])
    values = [(name, champion.params.get(name, "\u2013"), params.get(name, "\u2013")) for name in names]
    old = {row["id"]: row for row in champion.rows}
    pairs = [(row, old[row["id"]]) for row in rows if row["id"] in old and _is_same(row, old[row["id"]])]
    ours, theirs = [row for row, _ in pairs], [row for _, row in pairs]
    gains = contrast([ours], [theirs], resamples=resamples, seed=seed) if pairs else {}
    metrics = [name for name in (*METRICS, *(f"given_{name}" for name in METRICS)) if name in gains][:MOST]
    return {
        "version": champion.version,
        "params": [value for value in values if value[1] != value[2]],
        "questions": len(pairs),
        "of": max(len(rows), len(old)),
        "gains": [_gain(name, gains[name], ours, theirs) for name in metrics],
    }


def _is_same(ours: Row, theirs: Row) -> bool:
    return all(ours.get(name) == theirs.get(name) for name in ("question", "gold_answers"))


def _gain(name: str, gain: Mapping[str, Any], ours: Sequence[Row], theirs: Sequence[Row]) -> dict[str, Any]:
    """Return both means and the paired gain of one metric as text."""
    both = [(new[name], old[name]) for new, old in zip(ours, theirs, strict=True) if name in new and name in old]
    new, old = (sum(side) / len(both) for side in zip(*both, strict=True))
    format_value = (lambda value: f"{percent(value)} %") if is_share(name) else (lambda value: f"{value:.3g}")
    return {
        "metric": label(name),
        "before": format_value(old),
        "after": format_value(new),
        "gain": spread(gain, "gain", "+.1f") if is_share(name) else plain(gain, "gain", "+.2f"),
        "sign": sign(gain),
        "n": len(both),
    }
