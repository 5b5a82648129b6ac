"""reports/index.html: one self-contained page that shows what a run learnt, and how sure we are."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from harr.arms import ARMS, FULL, Arm
from harr.evaluate.exploits import EXPLOITS
from harr.evaluate.summary import BEST_BY_KIND, Summary, baseline_of, flat_rows, headline, parts_of
from harr.evaluate.tables import comparisons, label, percent, plain, runs, spread
from harr.io.files import write_text
from harr.rag.validation import best_point, leading
from harr.report.html import render
from harr.report.plots import draw_arms, draw_filter, draw_hops, draw_learning_curve, inline
from harr.report.reward_plots import draw_reward_distribution, draw_reward_progress

RANKED = ("recall_at_2", "recall_at_5", "recall_at_10", "ndcg_at_10", "reciprocal_rank")
ANSWERED = ("answer_f1", "answer_em", "semantic", "semantic_f1")
AUDITS = ("repeated_queries", "answer_in_query")
"""Audits: metrics that are good where they are low."""
SHOWN_METRICS = (*ANSWERED, "fact_em", "fact_f1", "all_gold", "recall", *RANKED, *AUDITS)
HARDLY = 0.1
"""What hiding a part of the state must cost for the report to say that the model uses it: 10 points."""
COST = {"gain": "", "low": "_low", "high": "_high"}
KINDS = {
    "gained": "right only after training",
    "lost": "right only before training",
    "both_right": "right with both",
    "both_wrong": "wrong with both",
}


def write_report(
    out: Path,
    *,
    summary: Summary,
    curve: Sequence[Mapping[str, Any]],
    filter_rows: Sequence[Mapping[str, Any]],
    trajectories: Mapping[str, Any],
    facts: Mapping[str, str],
    links: Mapping[str, str],
    arms: Mapping[str, Arm] = ARMS,
    candidates: Sequence[str] = ("corpus",),
    occlusion: Mapping[str, Mapping[str, Mapping[str, float]]] = MappingProxyType({}),
    played: Sequence[Mapping[str, Any]] = (),
    signal: str = "reward",
) -> None:
    """Write the page. Every text from passages and questions is escaped; nothing is loaded from elsewhere.

    Args:
        out: path of the page.
        summary: as :func:`harr.evaluate.summary.summarise` returns it.
        curve: one row per training step, as in metrics/training_stats.jsonl; empty: the page says nothing about it.
        filter_rows: one row per question that the filter tried; may be empty.
        trajectories: as from :func:`harr.report.examples.trajectories`.
        facts: names and values of what was run.
        links: names of further pages and their addresses relative to ``out``.
        arms: the record of every arm by its name.
        candidates: where was searched; metrics without prefix are of the first.
        occlusion: ``full`` with a part of its state left out, as in metrics/occlusion.json; may be empty.
        played: question rows of ``full``; the best paid are shown where queries are written.
        signal: what the steps tell: ``reward``, or ``accuracy`` of preferences.
    """
    lead, baseline = headline(summary), baseline_of(summary)
    rows = flat_rows(summary)
    text = render(
        "page.html.j2",
        lead=_lead(summary, lead, arms),
        what="a language model" if baseline in ARMS and ARMS[baseline].learner == "writer" else "a retriever",
        baseline=baseline,
        before=ARMS[baseline].before if baseline in ARMS else baseline,
        told=_told(summary, arms),
        reward=_reward(summary),
        metric=label(lead),
        once=len(_seeds(summary, lead)) < 2,
        parts=[_part(name, own, candidates[0]) for name, own in parts_of(summary).items()],
        occlusion=_occlusion(summary, occlusion, lead),
        hops=inline(draw_hops(rows)) if any("hop_recall" in row["metric"] for row in rows) else "",
        **_training(curve, signal),
        **_filtered(filter_rows),
        paid=_best_paid(played),
        **_alarms(summary.get("audit", {})),
        trajectories=trajectories,
        kinds=KINDS,
        facts=facts,
        links=links,
    )
    write_text(out, text)


def _training(curve: Sequence[Mapping[str, Any]], signal: str) -> dict[str, Any]:
    """Return the figures of the training, whether it was one by preferences, and what validation told."""
    with_terms = any("quantiles" in row for row in curve)
    return {
        "curve": inline(draw_learning_curve(curve, signal)) if curve else "",
        "prefers": bool(curve) and signal == "accuracy",
        "validation": _validation(curve),
        "progress": inline(draw_reward_progress(curve)) if with_terms else "",
        "distribution": inline(draw_reward_distribution(curve)) if with_terms else "",
    }


def _filtered(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the figure of the filter, and how many questions it kept or dropped for which reason."""
    reasons = Counter(row["reason"] for row in rows)
    return {
        "filter": inline(draw_filter(rows)) if any("reward_mean" in row for row in rows) else "",
        "reasons": [(reason, n, percent(n / len(rows))) for reason, n in reasons.most_common()],
    }


def _validation(curve: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the best point of the validation questions in words; nothing without any."""
    if not (best := best_point(curve)):
        return {}
    metric = leading(best)
    value = f"{best[metric]:.3f}" if metric == "reward" else f"{percent(best[metric])} %"
    return {"n": f"{best['questions']:.0f}", "metric": label(metric), "step": f"{best['step']:.0f}", "value": value}


def _lead(summary: Summary, lead: str, arms: Mapping[str, Arm]) -> dict[str, Any]:
    """Return what the first sentence says: the trained arm against its baseline, or no claim at all; no mixture of
    settings has one."""
    sizes = sorted({int(metrics[lead]["n"]) for metrics in summary["arms"].values() if lead in metrics})
    compared, basis = comparisons(summary, lead)
    baseline, seeds = baseline_of(summary), _seeds(summary, lead)
    found: dict[str, Any] = {"n": _range(sizes), "claim": "", "mixed": "settings" in summary}
    if baseline not in compared or FULL not in summary["arms"] or found["mixed"]:
        return found
    gain = compared[baseline]
    before, after = (percent(summary["arms"][arm][lead]["mean"]) for arm in (baseline, FULL))
    claim = "raised" if gain["low"] > 0 else "lowered" if gain["high"] < 0 else "did not measurably change"
    means = {arm: summary["arms"][arm][lead]["mean"] for arm in compared if _untrained(arm, arms)}
    best = max(means, key=means.__getitem__, default=baseline)
    rival = {"arm": best, "mean": percent(means[best]), **_gain(compared[best])} if best != baseline else {}
    told = {"before": before, "after": after, "rival": rival, "basis": basis, "runs": runs(seeds)}
    return found | {"claim": claim} | told | _gain(gain)


def _untrained(arm: str, arms: Mapping[str, Arm]) -> bool:
    """Return whether an arm is one that anybody has without training, and no ceiling."""
    return arm in arms and not arms[arm].trained and not arms[arm].ceiling


def _seeds(summary: Summary, lead: str) -> list[float]:
    """Return the means of the runs of ``full``."""
    seeds: list[float] = summary["arms"].get(FULL, {}).get(lead, {}).get("seeds", [])
    return seeds


def _told(summary: Summary, arms: Mapping[str, Arm]) -> dict[str, str]:
    """Return what every arm is, in words."""
    every = {name: None for own in (summary, *summary.get("settings", {}).values()) for name in own["arms"]}
    bound = (
        "takes for each kind of question the untrained arm that does best on it, chosen with the answers of these very "
        "questions: an upper bound of every rule over those arms"
    )
    told = {name: arm.says for name, arm in arms.items()} | {BEST_BY_KIND: bound}
    return {name: told[name] for name in every if name in told}


def _part(name: str, summary: Summary, first: str) -> dict[str, Any]:
    """Return what is shown of one setting of one data set: all arms, whom ``full`` is compared with, and the kinds."""
    lead = headline(summary)
    compared, basis = comparisons(summary, lead)
    kinds: Mapping[str, Mapping[str, Mapping[str, float]]] = summary.get("kinds", {})
    return {
        "name": name,
        "metric": label(lead),
        "baseline": baseline_of(summary),
        "arms": inline(draw_arms(flat_rows(summary))),
        "blocks": [block for prefix in ("", "given_") if (block := _block(summary, prefix, first))],
        "compared": {arm: _gain(gain) for arm, gain in compared.items()},
        "trained": FULL in summary["arms"],
        "basis": basis,
        "kinds": {kind or "none": int(max(cell["n"] for cell in arms.values())) for kind, arms in kinds.items()},
        "by_kind": {
            arm: [spread(arms[arm], "mean") if arm in arms else "" for arms in kinds.values()]
            for arm in summary["arms"]
            if kinds
        },
    }


def _reward(summary: Summary) -> list[tuple[str, str, str]]:
    """Return per arm the mean reward and its gain, both as plain numbers: a total of terms need not be a share."""
    return [
        (arm, plain(metrics["reward"], "mean", ".3f"), plain(gain, "gain", "+.3f") if gain else "")
        for arm, metrics in summary["arms"].items()
        if "reward" in metrics
        for gain in [summary["paired"].get(arm, {}).get("reward")]
    ]


def _best_paid(rows: Sequence[Mapping[str, Any]], count: int = 10) -> list[dict[str, Any]]:
    """Return the questions of the highest reward; of equal ones (to three decimals) those first that an audit speaks
    against.

    Empty where nobody wrote a query.
    """
    audited = any(name in row for row in rows for name in AUDITS)
    paid = [{**dict.fromkeys(AUDITS), **row} for row in rows if audited and "reward" in row]
    order = ("answer_in_query", "repeated_queries")
    return sorted(paid, key=lambda row: (-round(row["reward"], 3), *(-(row[name] or 0.0) for name in order)))[:count]


def _alarms(audit: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row for every exploit that the pipeline makes possible, and what the evidence swap told in words."""
    swap = audit.get("swap", {})
    told = f"not asked: {swap['untold']}" if "untold" in swap else spread(swap, "fall", "+.1f") if swap else ""
    rows = [
        {
            **one,
            "name": name,
            "says": EXPLOITS[name].says,
            "share": percent(one["share"]),
            "before": percent(one["before"]),
        }
        for name, one in audit.get("exploits", {}).items()
    ]
    return {"exploits": rows, "swap": told, "swapped": swap}


def _occlusion(summary: Summary, parts: Mapping[str, Any], lead: str) -> list[dict[str, str]]:
    """Return a row for ``full`` and one for each hidden part, with what that costs and what it says of the reading."""
    name = lead.removeprefix("given_")
    measured = {part: metrics[name] for part, metrics in parts.items() if name in metrics}
    if not measured:
        return []
    told = [{"name": FULL, "mean": spread(summary["arms"][FULL][lead], "mean"), "cost": "", "says": ""}]
    for part, values in measured.items():
        cost = spread({key: values[f"cost{end}"] for key, end in COST.items()}, "gain", "+.1f")
        reads = f"it reads the {part}" if values["cost"] >= HARDLY else f"it hardly uses the {part}"
        told.append({"name": f"{FULL} without the {part}", "mean": spread(values, "mean"), "cost": cost, "says": reads})
    return told


def _block(summary: Summary, prefix: str, first: str) -> dict[str, Any]:
    """Return one table: a row per arm, a column per metric with this prefix; empty without such a metric."""
    measured = {name for metrics in summary["arms"].values() for name in metrics}
    names = [prefix + name for name in SHOWN_METRICS if prefix + name in measured]
    if not names:
        return {}
    sizes = {name: sorted({int(m[name]["n"]) for m in summary["arms"].values() if name in m}) for name in names}
    return {
        "where": "only the passages given with the question" if prefix or first == "question" else "the whole corpus",
        "columns": [(label(name).removesuffix(", given passages"), _range(sizes[name])) for name in names],
        "rows": [
            (arm, [_cell(metrics.get(name), summary["paired"].get(arm, {}).get(name), name) for name in names])
            for arm, metrics in summary["arms"].items()
        ],
        "gains": bool(summary["paired"]),
    }


def _cell(mean: Mapping[str, Any] | None, gain: Mapping[str, float] | None, name: str) -> dict[str, str]:
    """Return the mean and gain of one arm in the metric ``name``, as text; a fall of an audit is an improvement."""
    if mean is None:
        return {}
    interval = f"{percent(mean['low'])} to {percent(mean['high'])}"
    cell = {"mean": percent(mean["mean"]), "interval": interval, "runs": runs(mean["seeds"])}
    shown = _gain(gain) if gain else {}
    if shown and name.removeprefix("given_") in AUDITS:
        shown["sign"] = {"up": "down", "down": "up"}.get(shown["sign"], "level")
    return cell | shown


def _gain(gain: Mapping[str, float]) -> dict[str, str]:
    """Return a paired gain in points, its p where it has one, and whether its interval excludes 0."""
    p = gain.get("p")
    return {
        "gain": spread(gain, "gain", "+.1f"),
        "p": "1 run, no p value" if p is None else "p < 0.001" if p < 0.001 else f"p = {p:.2g}",
        "sign": "up" if gain["low"] > 0 else "down" if gain["high"] < 0 else "level",
    }


def _range(sizes: Sequence[int]) -> str:
    """Return numbers of questions in words.

    >>> _range([400]), _range([380, 395, 1400])
    ('400', '380 to 1,400')
    """
    return f"{sizes[0]:,}" if len(sizes) == 1 else f"{sizes[0]:,} to {sizes[-1]:,}"
