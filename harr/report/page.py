"""reports/index.html: one self-contained page that shows what a run learnt, and how certain that is."""

import base64
import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from harr.arms import ARMS, TRAINED, Arm
from harr.evaluate.summary import Summary, baseline_of, headline, parts_of, rival_of
from harr.evaluate.tables import comparisons, label, percent, runs, verdict, warm_start_words
from harr.io.files import write_text
from harr.rag.validation import best_point, leading_metric
from harr.report.arms_table import arms_part, format_gain, reward_gain
from harr.report.html import as_json, render
from harr.report.plots import draw_filter, draw_learning_curve, inline

SCRIPT = Path(__file__).with_name("page.js").read_text(encoding="utf-8")


def write_report(
    out: Path,
    *,
    summary: Summary,
    curve: Sequence[Mapping[str, Any]],
    filter_rows: Sequence[Mapping[str, Any]],
    questions: Mapping[str, Any],
    facts: Mapping[str, str],
    links: Mapping[str, str],
    arms: Mapping[str, Arm] = ARMS,
    candidates: Sequence[str] = ("corpus",),
    signal: str = "reward",
) -> None:
    """Write the page. Every text from passages and questions is escaped; nothing is loaded from elsewhere, and only the
    page's own script runs, by its hash.

    Args:
        out: path of the page.
        summary: as :func:`harr.evaluate.summary.summarise` returns it.
        curve: one row per training step, as in metrics/training_stats.jsonl; if empty, it is left out.
        filter_rows: one row per question that the filter tried; may be empty.
        questions: every arm's first run, as :func:`harr.evaluate.plays.plays_of` returns it.
        facts: names and values of the run.
        links: addresses of further pages, relative to ``out``, by name.
        arms: every arm's record, by name.
        candidates: what was searched; metrics without prefix belong to the first.
        signal: the steps' figure: ``reward``, or ``accuracy`` for preferences.
    """
    lead, baseline = headline(summary), baseline_of(summary)
    text = render(
        "page.html.j2",
        **_script(),
        lead=_describe_lead(summary, lead),
        what="A language model" if ARMS.get(baseline, Arm("")).learner == "language_model" else "A retriever",
        reward=reward_gain(summary),
        metric=label(lead),
        once=len(_seeds(summary, lead)) < 2,
        parts=[arms_part(name, part, candidates[0], arms) for name, part in parts_of(summary).items()],
        **_training(curve, signal),
        **_describe_filter(filter_rows),
        audits=[audit for audit in summary.get("audits", {}).values() if audit["table"]],
        **{"questions": questions, "data": as_json(questions), "moved": _count_changes(questions)},
        **{"facts": facts, "links": links},
    )
    write_text(out, text)


def _script() -> dict[str, str]:
    """Return the page's script, and the hash by which a browser allows it."""
    digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    return {"script": Markup(SCRIPT), "digest": digest}


def _training(curve: Sequence[Mapping[str, Any]], signal: str) -> dict[str, Any]:
    """Return the learning curve, whether training was on preferences, and the validation."""
    return {
        "curve": inline(draw_learning_curve(curve, signal)) if curve else "",
        "prefers": bool(curve) and signal == "accuracy",
        "validation": _validation(curve),
    }


def _count_changes(questions: Mapping[str, Any]) -> dict[str, int]:
    """Return how many questions score higher, lower and the same with the pair's second arm; {} without two arms."""
    if not questions or questions["a"] == questions["b"]:
        return {}
    first, second = (questions["arms"].index(questions[end]) for end in "ab")
    scores = [(question["scores"][first], question["scores"][second]) for question in questions["questions"]]
    pairs = [(before, after) for before, after in scores if before is not None and after is not None]
    words = ["better" if after > before else "worse" if after < before else "same" for before, after in pairs]
    return {word: words.count(word) for word in ("better", "worse", "same")} if pairs else {}


def _describe_filter(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the filter's plot, and how many questions it kept or dropped for which reason."""
    reasons = Counter(row["reason"] for row in rows)
    return {
        "filter": inline(draw_filter(rows)) if any("reward_mean" in row for row in rows) else "",
        "reasons": [(reason, n, percent(n / len(rows))) for reason, n in reasons.most_common()],
    }


def _validation(curve: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the best validation point as texts; {} without any."""
    if not (best := best_point(curve)):
        return {}
    metric = leading_metric(best)
    value = f"{best[metric]:.3f}" if metric == "reward" else f"{percent(best[metric])} %"
    return {"n": f"{best['questions']:.0f}", "metric": label(metric), "step": f"{best['step']:.0f}", "value": value}


def _describe_lead(summary: Summary, lead: str) -> dict[str, Any]:
    """Return the content of the first sentence: the trained arm against the best untrained one, or else its baseline,
    or no claim at all; a mixture of settings has none."""
    sizes = sorted({int(metrics[lead]["n"]) for metrics in summary["arms"].values() if lead in metrics})
    compared, basis = comparisons(summary, lead)
    baseline, seeds = baseline_of(summary), _seeds(summary, lead)
    facts: dict[str, Any] = {"n": _range(sizes), "claim": "", "mixed": "settings" in summary}
    if TRAINED not in summary["arms"] or facts["mixed"]:
        return facts
    best = rival_of({"arms": {arm: summary["arms"][arm] for arm in compared}}, lead)
    rival = best or baseline
    if rival not in compared:
        return facts
    means = {arm: percent(summary["arms"][arm][lead]["mean"]) for arm in (rival, TRAINED)}
    before = {"arm": baseline, **format_gain(compared[baseline])} if baseline in compared and baseline != rival else {}
    return facts | {
        "claim": verdict(compared[rival]),
        "rival": rival,
        "untrained": bool(best),
        "means": means,
        "before": before,
        "warm_start": warm_start_words(summary, lead),
        "basis": basis,
        "runs": runs(seeds),
        **format_gain(compared[rival]),
    }


def _seeds(summary: Summary, lead: str) -> list[float]:
    """Return the means of ``trained``'s runs."""
    seeds: list[float] = summary["arms"].get(TRAINED, {}).get(lead, {}).get("seeds", [])
    return seeds


def _range(sizes: Sequence[int]) -> str:
    """Return numbers of questions as text.

    >>> _range([400]), _range([380, 395, 1400])
    ('400', '380 to 1,400')
    """
    return f"{sizes[0]:,}" if len(sizes) == 1 else f"{sizes[0]:,} to {sizes[-1]:,}"
