"""Which picks in a log of `harr lengths` a reader is shown, by rules that stop picking.

After Q-RAG (arXiv 2511.07328): a picker that continues after finding everything shows its reader noise, and the value
of a further pick shows that nothing is left to find. Gold is used by rules that know it, and for scores.
"""

from collections.abc import Mapping
from typing import Any, Literal

Rule = Literal["all", "value", "picks", "early_stop", "gold"]
"""Which picks are kept: all; those before the first whose value is below a threshold; the first so many; those up to
the one that completes the gold, or only the gold. The last two know the gold and bound what stopping can give."""


def count_needed(row: Mapping[str, Any]) -> int | None:
    """Return after how many picks all gold was found; None if it never was.

    >>> count_needed({"gold": [7, 2], "picked": [2, 5, 7, 9]})
    3
    """
    missing = set(row["gold"])
    for number, place in enumerate(row["picked"], start=1):
        missing.discard(place)
        if not missing:
            return number
    return None


def keep_picks(row: Mapping[str, Any], rule: Rule, limit: float = 0.0) -> list[int]:
    """Return which picks a rule keeps, counted from 0; ``limit`` is the threshold of the value, or a number of picks.

    >>> row = {"gold": [7, 2], "picked": [2, 5, 7, 9], "values": [0.9, 0.8, 0.7, 0.1]}
    >>> keep_picks(row, "value", 0.5), keep_picks(row, "picks", 2), keep_picks(row, "early_stop"), keep_picks(row, "gold")
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
            return every[: count_needed(row)]
        case "gold":
            return [number for number in every if row["picked"][number] in row["gold"]]
        case _:
            return every


def cut_row(row: Mapping[str, Any], rule: Rule, limit: float = 0.0) -> dict[str, Any]:
    """Return a log line with only the picks that a rule keeps, and their fact_em and fact_f1."""
    numbers = keep_picks(row, rule, limit)
    short = {name: [row[name][number] for number in numbers] for name in ("picked", "texts", "values")}
    picked, gold = set(short["picked"]), set(row["gold"])
    f1 = 2 * len(picked & gold) / (len(picked) + len(gold))
    return {**row, **short, "fact_em": float(gold <= picked), "fact_f1": f1}
