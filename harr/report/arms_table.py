"""A summary's arms as one table, all of whose rows and columns cover the same questions."""

from collections.abc import Mapping, Sequence
from typing import Any

from harr.arms import TRAINED, Arm
from harr.evaluate.summary import BEST_BY_KIND, Summary, baseline_of, headline, rival_of
from harr.evaluate.tables import comparisons, is_share, label, percent, plain, runs, spread

RANKED = ("ndcg_at_10", "reciprocal_rank", "recall_at_2", "recall_at_5", "recall_at_10")
ANSWERED = ("answer_f1", "answer_em", "semantic", "semantic_f1")
AUDITS = ("repeated_queries", "answer_in_query")
"""Audits: metrics of which lower values are better."""
METRICS = (*ANSWERED, "fact_em", "fact_f1", "all_gold", "recall", "reward", *AUDITS, *RANKED)
FEW = 5
"""Number of metrics shown next to the leading one."""
BOUND = (
    "takes for each kind of question the untrained arm that does best on it, chosen with the answers of these very "
    "questions: an upper bound of every rule over those arms"
)


def arms_part(name: str, summary: Summary, first: str, arms: Mapping[str, Arm]) -> dict[str, Any]:
    """Return the content for one setting: its arms, and the kinds and hops of a few of them."""
    lead, baseline = headline(summary), baseline_of(summary)
    compared, basis = comparisons(summary, lead)
    few = list(dict.fromkeys([baseline, rival_of(summary, lead), TRAINED, BEST_BY_KIND]))
    return {
        "name": name,
        "metric": label(lead),
        "baseline": baseline,
        "blocks": [part for mode in ("", "given_") if (part := _block(summary, lead, mode, first, compared, arms))],
        "trained": TRAINED in summary["arms"] and bool(compared),
        "basis": basis,
        "kinds": _kinds(summary, few),
        "hops": _hops(summary, [arm for arm in few if arm != BEST_BY_KIND]),
    }


def _block(
    summary: Summary, lead: str, prefix: str, first: str, compared: Mapping[str, Any], arms: Mapping[str, Arm]
) -> dict[str, Any]:
    """Return one table, the best arm first; {} without a metric of this prefix."""
    by_arm = {arm: row for arm, row in summary["arms"].items() if any(name.startswith("given_") for name in row)}
    by_arm = by_arm if prefix else summary["arms"]
    measured = {name for row in by_arm.values() for name in row}
    names = [prefix + name for name in METRICS if prefix + name in measured]
    if not names:
        return {}
    leads = lead if lead in names else names[0]
    by_arm = {arm: row for arm, row in by_arm.items() if leads in row}
    size = max(row[leads]["n"] for row in by_arm.values())
    by_arm = {arm: row for arm, row in by_arm.items() if row[leads]["n"] == size}
    columns, left_out = _columns(by_arm, leads, names, size)
    order = sorted(by_arm, key=lambda arm: -by_arm[arm][leads]["mean"])
    own_lead = leads == lead
    return {
        "where": "the passages given with each question" if prefix or first == "question" else "the whole corpus",
        "n": size,
        "lead": label(leads).removesuffix(", given passages"),
        "columns": [label(name).removesuffix(", given passages") for name in columns],
        "left_out": [label(name).removesuffix(", given passages") for name in left_out],
        "gains": own_lead and bool(summary["paired"]),
        "ahead": own_lead and TRAINED in summary["arms"] and bool(compared),
        "rows": [
            {
                "arm": arm,
                "says": BOUND if arm == BEST_BY_KIND else arms[arm].says if arm in arms else "",
                "badge": _badge(arm, summary, arms),
                "n": by_arm[arm][leads]["n"],
                "lead": _cell(by_arm[arm][leads], leads),
                "bar": _bar(by_arm[arm][leads]) if is_share(leads) else {},
                "cells": [_cell(by_arm[arm][name], name) for name in columns],
                "gain": format_gain(summary["paired"].get(arm, {}).get(leads)) if own_lead else format_gain(None),
                "ahead": format_gain(compared.get(arm))
                if own_lead and TRAINED in summary["arms"]
                else format_gain(None),
            }
            for arm in order
        ],
    }


def _columns(
    by_arm: Mapping[str, Mapping[str, Any]], lead: str, names: Sequence[str], size: int
) -> tuple[list[str], list[str]]:
    """Return the metrics next to the lead, and those left out: not measured for every question, equal to an earlier
    one, or beyond ``FEW``. A metric that is 0 for every arm is in neither."""
    columns, left_out, distinct = [], [], [[metrics[lead]["mean"] for metrics in by_arm.values()]]
    for name in names:
        if name == lead:
            continue
        means = [metrics[name]["mean"] for metrics in by_arm.values() if name in metrics and metrics[name]["n"] == size]
        if len(means) < len(by_arm) or means in distinct:
            left_out.append(name)
        elif any(means):
            columns.append(name)
            distinct.append(means)
    return columns[:FEW], columns[FEW:] + left_out


def _badge(arm: str, summary: Summary, arms: Mapping[str, Arm]) -> str:
    if arm == baseline_of(summary):
        return "before training"
    if arm == BEST_BY_KIND or (arm in arms and arms[arm].ceiling):
        return "a ceiling"
    return "trained" if arm in arms and arms[arm].trained else ""


def _cell(mean: Mapping[str, Any], name: str) -> dict[str, str]:
    """Return a mean with its interval and its runs' range, as text."""
    if not is_share(name):
        return {"mean": f"{mean['mean']:.3g}", "interval": f"{mean['low']:.3g} to {mean['high']:.3g}", "runs": ""}
    interval = f"{percent(mean['low'])} to {percent(mean['high'])}"
    many = f"{runs(mean['seeds'])} %" if len(mean["seeds"]) > 1 else runs(mean["seeds"])
    return {"mean": percent(mean["mean"]), "interval": interval, "runs": many}


def _bar(mean: Mapping[str, Any]) -> dict[str, str]:
    """Return the position of a mean and its interval between 0 and 100, for drawing."""
    low, high, middle = (100 * min(1.0, max(0.0, mean[key])) for key in ("low", "high", "mean"))
    return {"low": f"{low:.1f}", "width": f"{max(0.6, high - low):.1f}", "mean": f"{middle:.1f}"}


def format_gain(gain: Mapping[str, float] | None) -> dict[str, str]:
    """Return a paired gain in points, its p if it has one, and its :func:`sign`; empty texts without a gain."""
    if not gain:
        return {"gain": "", "p": "", "sign": ""}
    p = gain.get("p")
    return {
        "gain": spread(gain, "gain", "+.1f"),
        "p": "" if p is None else "p < 0.001" if p < 0.001 else f"p = {p:.2g}",
        "sign": sign(gain),
    }


def sign(gain: Mapping[str, float]) -> str:
    """Return whether a gain's interval is above 0, below 0, or contains it: the class of its colour."""
    return "up" if gain["low"] > 0 else "down" if gain["high"] < 0 else "level"


def _kinds(summary: Summary, few: Sequence[str]) -> dict[str, Any]:
    """Return the means of a few arms by kind of question."""
    kinds: Mapping[str, Mapping[str, Mapping[str, float]]] = summary.get("kinds", {})
    names = [arm for arm in few if any(arm in cells for cells in kinds.values())]
    rows = [
        (
            kind or "none",
            int(max(cell["n"] for cell in cells.values())),
            [spread(cells[arm], "mean") if arm in cells else "" for arm in names],
        )
        for kind, cells in kinds.items()
    ]
    return {"arms": names, "rows": rows} if rows else {}


def _hops(summary: Summary, few: Sequence[str]) -> dict[str, Any]:
    """Return how often a few arms found each hop's gold passage, in the whole corpus or among those given."""
    by_arm = summary["arms"]
    prefix = "hop_recall_" if any("hop_recall_1" in metrics for metrics in by_arm.values()) else "given_hop_recall_"
    arms = [arm for arm in few if f"{prefix}1" in by_arm.get(arm, {})]
    names = [name for arm in arms for name in by_arm[arm] if name.startswith(prefix)]
    rows = []
    for hop in range(1, max((int(name.removeprefix(prefix)) for name in names), default=0) + 1):
        cells = [by_arm[arm].get(f"{prefix}{hop}") for arm in arms]
        size = max((int(cell["n"]) for cell in cells if cell), default=0)
        rows.append((f"hop {hop}", size, [spread(cell, "mean") if cell else "" for cell in cells]))
    return {"arms": arms, "rows": rows} if len(rows) > 1 else {}


def reward_gain(summary: Summary) -> str:
    """Return the mean reward of ``trained`` and its gain over the baseline, as plain numbers, since a total need not be
    a share; "" if it equals the leading metric."""
    reward, gain = summary["arms"].get(TRAINED, {}).get("reward"), summary["paired"].get(TRAINED, {}).get("reward")
    lead = summary["arms"].get(TRAINED, {}).get(headline(summary))
    if not reward or not gain or (lead and abs(lead["mean"] - reward["mean"]) < 1e-6):
        return ""
    return f"{plain(reward, 'mean', '.3f')}, gain {plain(gain, 'gain', '+.3f')}"
