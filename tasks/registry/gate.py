"""The promotion gate: what a candidate must show before it becomes champion, read from the registry."""

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harr.arms import FULL
from harr.errors import IndexMismatch
from harr.io.files import read_json, read_jsonl
from harr.params import Params
from harr.report.promotion import Condition, Verdict
from tasks.embed import vectors_manifest
from tasks.paths import AUDIT, VECTORS

Row = dict[str, Any]
FACTS = {
    "kind": "kind",
    "corpus": "corpus",
    "passages": "passages of the corpus",
    "trained_on": "corpus that it was trained on",
    "index": "index",
    "evaluation": "questions and game",
    "model": "model files",
    "params": "parameters",
    "harr.dvc_lock": "dvc.lock",
    "mlflow.source.git.commit": "git commit",
    "harr.edited": "code edited since",
    "environment": "environment (requirements.txt)",
}
"""Fingerprints of a version, and how the page names them."""


def judge(client: Any, params: Params, candidate: Any, champion: Any | None) -> Verdict:
    """Compare the candidate with the champion; where there is none yet, with the arm that it began as (``baseline``).

    Args:
        client: of MLflow.
        params: reward.terms names the metric that decides, tracking.min_questions the least n.
        candidate: a model version.
        champion: a model version, or None.
    """
    from harr.evaluate.summary import contrast

    rival, arm = (champion, FULL) if champion else (candidate, params.baseline)
    ours, theirs = rows_of(client, candidate, FULL), rows_of(client, rival, arm)
    drawn = {"resamples": params.evaluate.resamples, "seed": params.seed}
    gains = contrast([ours], [theirs], **drawn) if ours and theirs else {}
    against = f"champion {champion.version}" if champion else f"its own arm {params.baseline} (no champion yet)"
    lacking = [
        f"version {one.version} has no rows of arm {played}; add {played} to evaluate.arms and run `dvc repro`"
        for one, played, rows in ((candidate, FULL, ours), (rival, arm, theirs))
        if not rows
    ]
    conditions = [
        Condition(
            "new",
            f"champion is {champion.version}" if champion else "no champion yet",
            "a candidate that is not the champion already",
            champion is None or champion.version != candidate.version,
        ),
        _comparable(candidate, champion),
        _gain(params.headline, gains, lacking),
        _enough(params, gains),
        _expectations(candidate),
        _index(candidate),
        *_honest(_kept(client, candidate, AUDIT), params.tracking.allowed_exploits),
    ]
    facts = {words: candidate.tags.get(tag, "none recorded") for tag, words in FACTS.items()}
    return Verdict(candidate.name, str(candidate.version), against, tuple(conditions), gains, facts)


def _comparable(candidate: Any, champion: Any | None) -> Condition:
    """Ask that both answered the same questions, with the same index and pipeline."""
    needed = (
        "the same questions, index and pipeline as the champion's; set params.yaml to the champion's (they are in "
        "its MLflow run) and `dvc repro`, or give the candidate a tracking.registered_model of its own"
    )
    if champion is None:
        return Condition("same game", "no champion to share it with", "the same questions for both", True)
    same = champion.tags.get("evaluation") == candidate.tags.get("evaluation")
    found, own, theirs = "the same" if same else "another", _corpus(candidate), _corpus(champion)
    if not same and own != theirs:
        found = f"played on corpus {own}, the champion on {theirs}"
        needed = (
            "one corpus for both; bring the champion's back, or `harr pull` the champion and `harr evaluate --model` "
            "it on this one"
        )
    return Condition("same game", found, "the champion's" if same else needed, same)


def _corpus(version: Any) -> str:
    """Return on which corpus a version was evaluated."""
    corpus, passages = version.tags.get("corpus", ""), version.tags.get("passages", "")
    return (corpus[:8] or "unknown") + (f" ({int(passages):,} passages)" if passages else "")


def _gain(metric: str, gains: Mapping[str, Mapping[str, float]], lacking: Sequence[str]) -> Condition:
    """Ask that the paired interval of the metric that decides lies above 0: over questions, for these two models."""
    needed = "an interval that lies above 0"
    if lacking:
        return Condition("gain", "; ".join(lacking), needed, False)
    if metric not in gains:
        found = f"not measured in {metric}, the first of reward.terms; it has {', '.join(gains)}"
        return Condition("gain", found, needed, False)
    gain = gains[metric]
    found = f"{metric} {gain['gain']:+.3f} [{gain['low']:+.3f}, {gain['high']:+.3f}]"
    return Condition("gain", found, needed, gain["low"] > 0)


def _enough(params: Params, gains: Mapping[str, Mapping[str, float]]) -> Condition:
    """Ask that the comparison rests on enough questions."""
    found = int(gains[params.headline]["n"]) if params.headline in gains else 0
    least = params.tracking.min_questions
    return Condition("questions", f"{found}", f"at least {least} (tracking.min_questions)", found >= least)


def _expectations(candidate: Any) -> Condition:
    """Ask that every suite of data expectations held in the run that made the version."""
    held: dict[str, float] = json.loads(candidate.tags.get("expectations", "{}"))
    missing = [suite for suite, rules in held.items() if not rules]
    if not held:
        found = "none recorded"
    elif missing:
        found = f"no result of {', '.join(missing)}"
    else:
        found = f"{sum(held.values()):.0f} rules of {', '.join(held)} held"
    passed = bool(held) and not missing
    return Condition("expectations", found, "all held" if passed else "all held (`dvc repro -f` records them)", passed)


def _index(candidate: Any) -> Condition:
    """Ask that the version was trained for the index that is here."""
    try:
        here = str(vectors_manifest()["identity"])
    except (OSError, ValueError, KeyError, IndexMismatch):
        here = ""
    found = candidate.tags.get("index", "none recorded")
    needed = here or f"the one of {VECTORS}, which is missing here; run `dvc pull` or `dvc repro embed`"
    return Condition("index", found, needed, bool(here) and found == here)


def _honest(audit: Mapping[str, Any], allowed: Sequence[str]) -> list[Condition]:
    """Ask that no exploit of the reward was named, and that answers depend on passages where there are answers."""
    if not audit:
        needed = "an audit of full beside the arm that it began as (name both in evaluate.arms, then `dvc repro`)"
        return [Condition("exploits", "none recorded", needed, False)]
    named = {name: line for name, line in audit["named"].items() if name not in allowed}
    passed = [name for name in audit["named"] if name in allowed]
    found = "; ".join(named.values()) or ", ".join(["none", *(f"{name} is allowed" for name in passed)])
    needed = "none, or its name in tracking.allowed_exploits" if named else "none"
    exploits = Condition("exploits", found, needed, not named)
    swap, needed = audit["swap"], "an answer F1 that falls with another question's passages"
    if "untold" in swap:
        return [exploits, Condition("evidence", f"not asked: {swap['untold']}", needed, True)]
    found = f"answer F1 {swap['own']:.3f} falls by {swap['fall']:.3f} [{swap['low']:.3f}, {swap['high']:.3f}]"
    held = swap["low"] > 0
    found = found if held else f"answers do not depend on passages: {found}"
    return [exploits, Condition("evidence", found, needed, held)]


def rows_of(client: Any, version: Any, arm: str) -> list[Row]:
    """Return the evaluation rows that were registered with a version; none where it has no such arm."""
    rows: list[Row] = _kept(client, version, f"{arm}.jsonl") or []
    return rows


def _kept(client: Any, version: Any, name: str) -> Any:
    """Return a file of the evaluation that was registered with a version; {} where it has none of that name."""
    if name not in {Path(file.path).name for file in client.list_artifacts(version.run_id, "evaluation")}:
        return {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(client.download_artifacts(version.run_id, f"evaluation/{name}", folder))
        return read_jsonl(path) if path.suffix == ".jsonl" else read_json(path)
