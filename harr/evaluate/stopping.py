"""When to stop picking, told from the logs of `harr lengths`: what a reader is shown, and a study of thresholds on Q.

After Q-RAG (arXiv 2511.07328): a picker that goes on after it has found all shows its reader noise, and the value of a
further pick tells that nothing is left to find. Gold is read where a rule is said to know it, and to score.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.stats import rankdata

from harr.evaluate.intervals import mean_interval

RULES = ("all", "value", "picks", "early_stop", "gold")
"""What is kept of the picks: all; those before the first whose value is below a threshold; the first so many; up to the
one that completes the gold, or the gold alone, which both know the gold and bound what stopping can give."""


def needed(row: Mapping[str, Any]) -> int | None:
    """Return after how many picks all gold was found; None where it never was.

    >>> needed({"gold": [7, 2], "picked": [2, 5, 7, 9]})
    3
    """
    missing = set(row["gold"])
    for number, place in enumerate(row["picked"], start=1):
        missing.discard(place)
        if not missing:
            return number
    return None


def kept(row: Mapping[str, Any], rule: str, limit: float = 0.0) -> list[int]:
    """Return which picks a rule keeps, counted from 0; ``limit`` is the threshold of value, or a number of picks.

    >>> row = {"gold": [7, 2], "picked": [2, 5, 7, 9], "values": [0.9, 0.8, 0.7, 0.1]}
    >>> kept(row, "value", 0.5), kept(row, "picks", 2), kept(row, "early_stop"), kept(row, "gold")
    ([0, 1, 2], [0, 1], [0, 1, 2], [0, 2])
    """
    every = list(range(len(row["picked"])))
    match rule:
        case "value":
            low = [number for number in every if row["values"][number] < limit]
            return every[: min(low, default=len(every))]
        case "picks":
            return every[: int(limit)]
        case "early_stop":
            return every[: needed(row)]
        case "gold":
            return [number for number in every if row["picked"][number] in row["gold"]]
        case _:
            return every


def shown(row: Mapping[str, Any], rule: str, limit: float = 0.0) -> dict[str, Any]:
    """Return the line of a log with the picks that a rule keeps, and their fact_em and fact_f1."""
    numbers = kept(row, rule, limit)
    short = {name: [row[name][number] for number in numbers] for name in ("picked", "texts", "values")}
    found, gold = set(short["picked"]), set(row["gold"])
    f1 = 2 * len(found & gold) / (len(found) + len(gold))
    return {**row, **short, "fact_em": float(gold <= found), "fact_f1": f1}


def stops(row: Mapping[str, Any], threshold: float) -> str:
    """Return whether a threshold stops a story ``early``, ``perfect`` (right after its last gold) or ``late``.

    ``not found``: its picks never hold all gold.

    >>> row = {"gold": [7, 2], "picked": [2, 7, 9], "values": [0.9, 0.7, 0.1]}
    >>> [stops(row, threshold) for threshold in (0.0, 0.5, 0.8)]
    ['late', 'perfect', 'early']
    """
    if (wanted := needed(row)) is None:
        return "not found"
    length = len(kept(row, "value", threshold))
    return "perfect" if length == wanted else "early" if length < wanted else "late"


def auc(rows: Sequence[Mapping[str, Any]]) -> float | None:
    """Return the chance that a pick before the last gold has a higher value than one after it; None without both.

    Stories whose picks never hold all gold tell nothing of where to stop.

    >>> auc([{"gold": [7, 2], "picked": [2, 7, 9], "values": [0.9, 0.7, 0.1]}])
    1.0
    """
    wanted, extra = [], []
    for row in rows:
        if (last := needed(row)) is not None:
            wanted += row["values"][:last]
            extra += row["values"][last:]
    if not (wanted and extra):
        return None
    ranks = rankdata([*wanted, *extra])[: len(wanted)]
    return float((ranks.sum() - len(wanted) * (len(wanted) + 1) / 2) / (len(wanted) * len(extra)))


def study(
    rows: Sequence[Mapping[str, Any]], rule: str, limits: Sequence[float], *, resamples: int, seed: int
) -> list[dict[str, Any]]:
    """Return per limit of a rule (``value`` or ``picks``) the length that is kept and mean and interval of the rest.

    A row has ``limit``, ``length``, ``n``, ``fact_em`` and ``fact_f1`` (mean, low, high) and, for thresholds, the
    shares of stories that stop ``early``, ``perfect`` and ``late``.
    """
    table = []
    for limit in limits:
        cut = [shown(row, rule, limit) for row in rows]
        told: dict[str, Any] = {"limit": limit, "length": float(np.mean([len(row["picked"]) for row in cut]))}
        for metric in ("fact_em", "fact_f1"):
            spread = mean_interval([row[metric] for row in cut], resamples=resamples, seed=seed)
            told |= {"n": spread["n"], metric: [spread[name] for name in ("mean", "low", "high")]}
        if rule == "value":
            verdicts = [stops(row, limit) for row in rows]
            told |= {verdict: verdicts.count(verdict) / len(rows) for verdict in ("early", "perfect", "late")}
        table.append(told)
    return table
