"""When to stop picking: a study of thresholds on Q, and of numbers of picks, from logs of `harr lengths`."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from harr_lengths.picks import count_needed, cut_row, keep_picks
from harr_lengths.play import whole_lines
from scipy.stats import mannwhitneyu

from harr.errors import ParamsError
from harr.evaluate.intervals import mean_interval


def stops(row: Mapping[str, Any], threshold: float) -> str:
    """Return whether a threshold stops a story ``early``, ``perfect`` (right after its last gold) or ``late``.

    ``not found``: its picks never contain all gold.

    >>> row = {"gold": [7, 2], "picked": [2, 7, 9], "values": [0.9, 0.7, 0.1]}
    >>> [stops(row, threshold) for threshold in (0.0, 0.5, 0.8)]
    ['late', 'perfect', 'early']
    """
    if (wanted := count_needed(row)) is None:
        return "not found"
    length = len(keep_picks(row, "value", threshold))
    return "perfect" if length == wanted else "early" if length < wanted else "late"


def auc(rows: Sequence[Mapping[str, Any]]) -> float | None:
    """Return the chance that a pick before the last gold has a higher value than one after it; None without both.

    Stories whose picks never contain all gold do not tell where to stop.

    >>> auc([{"gold": [7, 2], "picked": [2, 7, 9], "values": [0.9, 0.7, 0.1]}])
    1.0
    """
    wanted, extra = [], []
    for row in rows:
        if (last := count_needed(row)) is not None:
            wanted += row["values"][:last]
            extra += row["values"][last:]
    if not (wanted and extra):
        return None
    return float(mannwhitneyu(wanted, extra).statistic / (len(wanted) * len(extra)))


def study(
    rows: Sequence[Mapping[str, Any]],
    rule: Literal["value", "picks"],
    limits: Sequence[float],
    *,
    resamples: int,
    seed: int,
) -> list[dict[str, Any]]:
    """Return, per limit of a rule, the length kept and the mean and interval of the other figures.

    A row has ``limit``, ``length``, ``n``, ``fact_em`` and ``fact_f1`` (mean, low, high) and, for thresholds, the
    shares of stories that stop ``early``, ``perfect`` and ``late``.
    """
    table = []
    for limit in limits:
        cut = [cut_row(row, rule, limit) for row in rows]
        row_of_limit: dict[str, Any] = {"limit": limit, "length": float(np.mean([len(row["picked"]) for row in cut]))}
        for metric in ("fact_em", "fact_f1"):
            spread = mean_interval([row[metric] for row in cut], resamples=resamples, seed=seed)
            row_of_limit |= {"n": spread["n"], metric: [spread[name] for name in ("mean", "low", "high")]}
        if rule == "value":
            verdicts = [stops(row, limit) for row in rows]
            row_of_limit |= {verdict: verdicts.count(verdict) / len(rows) for verdict in ("early", "perfect", "late")}
        table.append(row_of_limit)
    return table


def stopping_tables(
    logs: Sequence[Path], thresholds: Sequence[float] | None, tune: Sequence[Path] | None
) -> tuple[dict[str, list[dict[str, Any]]], float | None]:
    """Return what stopping by every threshold and after every number of picks gives, by rule, and the AUC of values.

    With ``tune`` there is one threshold, the one with the best fact F1 on those logs.

    Raises:
        ParamsError: a log is missing or empty.
    """

    def rows_of(paths: Sequence[Path]) -> list[dict[str, Any]]:
        read = {path: whole_lines(path) for path in paths}
        if empty := [path for path, rows in read.items() if not rows]:
            raise ParamsError(f"{empty[0]}: expected a log eval_seed<seed>_ns<sentences>.jsonl of `harr lengths`")
        return [row for rows in read.values() for row in rows]

    draws: Any = {"resamples": 2000, "seed": 0}
    rows, values = rows_of(logs), list(thresholds or [round(0.1 * step - 0.1, 1) for step in range(13)])
    if tune:
        values = [max(study(rows_of(tune), "value", values, **draws), key=lambda row: row["fact_f1"][0])["limit"]]
    most = max(len(row["picked"]) for row in rows)
    by_picks = study(rows, "picks", [float(count) for count in range(1, most + 1)], **draws)
    return {"threshold": study(rows, "value", values, **draws), "picks": by_picks}, auc(rows)


def stopping_lines(
    logs: Sequence[Path], thresholds: Sequence[float] | None, tune: Sequence[Path] | None
) -> Iterator[str]:
    """Yield the tables of :func:`stopping_tables` as lines, and the AUC."""
    tables, separation = stopping_tables(logs, thresholds, tune)
    for rule, table in tables.items():
        yield f"{rule:>9}  length  fact EM [95 %]         fact F1 [95 %]         early  perfect   late    n"
        for row in table:
            spreads = ["{:.3f} [{:.3f}, {:.3f}]".format(*row[metric]) for metric in ("fact_em", "fact_f1")]
            shares = [f"{row[name]:.3f}" if name in row else "" for name in ("early", "perfect", "late")]
            line = f"{row['limit']:>9.2f}  {row['length']:>6.2f}  {spreads[0]}   {spreads[1]}  "
            yield f"{line}{shares[0]:>6} {shares[1]:>8} {shares[2]:>6} {row['n']:>4}"
    auc = "no pick beyond the gold" if separation is None else f"{separation:.3f}"
    yield f"AUC of values, needed picks against others: {auc}"
