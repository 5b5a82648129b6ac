"""The promotion gate: what a candidate must show before it becomes champion, read only from the registry.

The deciding metric, thresholds and draws are those that the candidate was registered with (tag ``rules``), since
params.yaml may have changed.
"""

import json
import tempfile
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from harr.arms import ARMS, TRAINED
from harr.errors import IndexMismatch, ParamsError, PromotionRefused
from harr.evaluate.tables import is_share, label, with_interval
from harr.io.files import fingerprint, read_json, read_jsonl, sha256
from harr.params.functions import function_of
from harr.report.promotion import Condition, Verdict
from harr.services.model_registry import copy_artifacts
from tasks.common import read_vectors_manifest
from tasks.evaluation_record import PLAYED
from tasks.paths import VECTORS
from tasks.registry import attempts, history

Row = dict[str, Any]
Gains = Mapping[str, Mapping[str, float]]
"""A candidate's gains, by metric: ``gain``, ``low``, ``high`` and ``n``."""
Replay = Callable[[], list[Row]] | None
ASKS = "takes MLflow's client, the candidate, its gains and the settings, and returns a Condition (harr/report/promotion.py)"
"""What a function of ``tracking.conditions`` does."""
FACTS = {
    "kind": "kind",
    "arm": "arm",
    "corpus": "corpus",
    "passages": "passages of the corpus",
    "trained_on": "corpus that it was trained on",
    "index": "index",
    "questions": "test questions",
    "evaluation": "questions and game",
    "rules": "rules of the promotion",
    "model": "model files",
    "params": "parameters",
    "harr.dvc_lock": "dvc.lock",
    "mlflow.source.git.commit": "git commit",
    "harr.edited": "code edited since",
    "environment": "environment (requirements.txt)",
}
"""Fingerprints of a version, with their names on the page."""


def judge(
    client: Any,
    candidate: Any,
    champion: Any | None,
    past: list[str],
    replay: Replay = None,
    foreign: Container[str] = (),
) -> Verdict:
    """Compare the candidate with the champion, or what it began as (``baseline``), and with the best untrained arm.

    A first champion that was not trained is compared only with the best untrained arm.

    Args:
        client: MLflow's.
        candidate: a model version; its ``rules`` say what decides.
        champion: a model version, or None.
        past: the champions as promotions made them (:func:`tasks.registry.history.champions`).
        replay: plays the champion on the candidate's game and returns its rows; called if their games differ. With
            None the registered rows are compared, and different games are refused.
        foreign: names in tracking.conditions; only these of the functions in the candidate's rules are called.

    Raises:
        PromotionRefused: the candidate has no rules, or its evaluation changed since it was registered.
    """
    rules = rules_of(candidate)
    same = champion is None or champion.tags.get("evaluation") == candidate.tags.get("evaluation")
    again = champion is not None and replay is not None
    arm = arm_of(candidate)
    began = rules["baseline"] if is_trained(candidate) else arm
    rival, other = (champion, arm_of(champion)) if champion else (candidate, began)
    own = rows_of(client, candidate, arm, began, *rules["untrained"])
    ours = own[arm]
    theirs = replay() if again and replay else rows_of(client, champion, other)[other] if champion else own[other]
    wrong = faults(ours, theirs)
    number = attempts.number_of(client, candidate)
    tail = attempts.level(number, rules["arms"])
    draws = {"resamples": attempts.draws(tail, rules["resamples"]), "seed": rules["seed"], "tail": tail}
    gains_over = partial(_gains, draws, ours)
    gains = {} if wrong else gains_over(theirs)
    against = "no champion yet" if other == arm else f"its own arm {other} (no champion yet)"
    against = f"champion {champion.version}" if champion else against
    lacking = _lacking((candidate, arm, ours), (rival, other, theirs)) or [wrong] * bool(wrong)
    conditions = [
        _new(candidate, champion),
        _comparable(candidate, champion, same=same, again=again),
        _gain(rules["metric"], gains, lacking, first=not champion and other == arm),
        _untrained(rules["metric"], ours, {name: own[name] for name in rules["untrained"]}, gains_over),
        _enough(rules, gains),
        _attempts(number, tail),
        _history(past, champion),
        _same_rules(rules, champion),
        _expectations(candidate),
        _index(candidate),
        *_ask_functions(client, candidate, gains, rules["conditions"], foreign),
    ]
    facts = {words: candidate.tags.get(tag, "none recorded") for tag, words in FACTS.items()}
    level = f"{100 * (1 - 2 * tail):.5g}"
    return Verdict(candidate.name, str(candidate.version), against, tuple(conditions), gains, facts, level)


def arm_of(version: Any) -> str:
    """Return the arm that a version is in its evaluation."""
    return str(version.tags.get("arm", TRAINED))


def is_trained(version: Any) -> bool:
    """Return whether a version's arm was trained; for an arm of another package a tag says so."""
    arm = arm_of(version)
    return ARMS[arm].trained if arm in ARMS else version.tags.get("trained") != "False"


def rules_of(version: Any) -> dict[str, Any]:
    """Return the rules of comparison that a version was registered with.

    Raises:
        PromotionRefused: it was registered without rules, as by an older harr, or they cannot be read.
    """
    try:
        return {"conditions": {}, "untrained": [], "arms": 1, **json.loads(version.tags["rules"])}
    except (LookupError, ValueError, TypeError):
        raise PromotionRefused(
            f"version {version.version} of {version.name} does not say by what it is compared (tag rules); run `dvc "
            "repro -f -s merge`, which registers it with that"
        ) from None


def faults(ours: Sequence[Row], theirs: Sequence[Row]) -> str:
    """Return why rows cannot be compared: a question that only one side has; "" if they can.

    >>> faults([{"id": "a", "recall": 1.0}], [{"id": "b", "recall": 1.0}])
    'the two have not the same questions: 2 of 2 are only in one (first: a)'
    """
    mine, others = ({row["id"] for row in rows} for rows in (ours, theirs))
    single = sorted(mine ^ others) if mine and others else []
    if not single:
        return ""
    every = len(mine | others)
    return f"the two have not the same questions: {len(single)} of {every} are only in one (first: {single[0]})"


def _lacking(*sides: tuple[Any, str, list[Row]]) -> list[str]:
    """Return a line for each version without rows of its arm."""
    return [
        f"version {version.version} has no rows of arm {name}; add {name} to evaluate.arms and run `dvc repro`"
        for version, name, rows in sides
        if not rows
    ]


def _new(candidate: Any, champion: Any | None) -> Condition:
    now = f"champion is {champion.version} ({arm_of(champion)})" if champion else "no champion yet"
    differs = champion is None or champion.version != candidate.version
    return Condition("new", f"{arm_of(candidate)}, {now}", "a candidate that is not the champion already", differs)


def _comparable(candidate: Any, champion: Any | None, *, same: bool, again: bool) -> Condition:
    """Require that both answered the same questions, with the same index and pipeline."""
    needed = (
        "the same questions, index and pipeline as the champion's; `harr promote --re-evaluate` plays the champion on "
        "the candidate's"
    )
    if champion is None:
        return Condition("same game", "no champion to share it with", "the same questions for both", True)
    if again:
        return Condition("same game", f"champion {champion.version} was played again on it", "the candidate's", True)
    state, ours, theirs = "the same" if same else "another", _corpus(candidate), _corpus(champion)
    if not same and ours != theirs:
        state = f"played on corpus {ours}, the champion on {theirs}"
        needed = "one corpus for both; `harr promote --re-evaluate` plays the champion on the candidate's"
    return Condition("same game", state, "the champion's" if same else needed, same)


def _corpus(version: Any) -> str:
    """Return the corpus that a version was evaluated on."""
    corpus, passages = version.tags.get("corpus", ""), version.tags.get("passages", "")
    return (corpus[:8] or "unknown") + (f" ({int(passages):,} passages)" if passages else "")


def _gain(metric: str, gains: Gains, lacking: Sequence[str], *, first: bool) -> Condition:
    """Require that the paired interval of the deciding metric, over questions and for these two models, lies above 0.

    A ``first`` champion that was not trained has nothing to gain over.
    """
    needed = "measured" if first else "an interval that lies above 0"
    if lacking:
        return Condition("gain", "; ".join(lacking), needed, False)
    if metric not in gains:
        state = f"not measured in {label(metric)}, which decides; it has {', '.join(gains)}"
        return Condition("gain", state, needed, False)
    gain = gains[metric]
    if first:
        return Condition("gain", f"no champion, and nothing was trained: {label(metric)} measured", needed, True)
    return Condition("gain", _words(metric, gain), needed, gain["low"] > 0)


def _words(metric: str, gain: Mapping[str, float]) -> str:
    return f"{label(metric)} {with_interval(metric, gain, 'gain')}{' points' * is_share(metric)}"


def _gains(draws: Mapping[str, Any], ours: list[Row], theirs: list[Row]) -> Gains:
    from harr.evaluate.summary import contrast

    return contrast([ours], [theirs], **draws) if ours and theirs else {}


def _untrained(
    metric: str, ours: Sequence[Row], played: Mapping[str, list[Row]], gains_over: Callable[[list[Row]], Gains]
) -> Condition:
    """Require that the candidate is not behind the best untrained arm on its own game."""
    needed = "a gain that is not below 0"
    own = {row["id"]: row[metric] for row in ours if metric in row}
    leads = {}  # over the questions that both have the metric on: one without answers has no F1
    for arm, rows in played.items():
        lead = [row[metric] - own[row["id"]] for row in rows if metric in row and row["id"] in own]
        if lead and not faults(ours, rows):
            leads[arm] = fmean(lead)
    best = max(leads, key=lambda arm: leads[arm], default="")
    gain = gains_over(played.get(best, [])).get(metric)
    if gain is None:
        return Condition("best untrained arm", "none was played", needed, True)
    state = f"{best}: {_words(metric, gain)}"
    return Condition("best untrained arm", state, needed, gain["gain"] >= 0)


def _enough(rules: Mapping[str, Any], gains: Gains) -> Condition:
    """Require enough questions for the comparison."""
    count = int(gains[rules["metric"]]["n"]) if rules["metric"] in gains else 0
    least = rules["min_questions"]
    return Condition("questions", f"{count}", f"at least {least} (tracking.min_questions)", count >= least)


def _attempts(number: int, tail: float) -> Condition:
    """Require that the test questions were not used too often (tasks/registry/attempts.py), and say how often."""
    state = f"number {number} on these questions, tested at one-sided {tail:.2g} of {attempts.ALPHA}"
    needed = f"at most {attempts.MOST}; then other test questions (download.seed, or a new file)"
    return Condition("attempt", state, needed, number <= attempts.MOST)


def _history(past: list[str], champion: Any | None) -> Condition:
    """Require that a promotion or rollback made the champion."""
    moved = history.describe_manual_move(past, champion)
    return Condition("history", moved or "as promotions left it", "a champion that was promoted here", not moved)


def _same_rules(rules: Mapping[str, Any], champion: Any | None) -> Condition:
    """Require the deciding metric to be the one that decided for the champion."""
    try:
        before = rules_of(champion)["metric"] if champion else rules["metric"]
    except PromotionRefused:
        before = rules["metric"]
    needed = f"{label(before)}, which decided for the champion (tracking.metric)"
    return Condition("metric", label(rules["metric"]), needed, rules["metric"] == before)


def _expectations(candidate: Any) -> Condition:
    """Require that every suite of data expectations passed in the run that made the version."""
    counts: dict[str, float] = json.loads(candidate.tags.get("expectations", "{}"))
    missing = [suite for suite, rules in counts.items() if not rules]
    if not counts:
        state = "none recorded"
    elif missing:
        state = f"no result of {', '.join(missing)}"
    else:
        state = f"{sum(counts.values()):.0f} rules of {', '.join(counts)} held"
    passed = bool(counts) and not missing
    return Condition("expectations", state, "all held" if passed else "all held (`dvc repro -f` records them)", passed)


def _index(candidate: Any) -> Condition:
    """Require that the version was trained for the index here."""
    try:
        here = str(read_vectors_manifest()["identity"])
    except (OSError, ValueError, KeyError, IndexMismatch):
        here = ""
    index = candidate.tags.get("index", "none recorded")
    needed = here or f"the one of {VECTORS}, which is missing here; run `dvc pull` or `dvc repro embed`"
    return Condition("index", index, needed, bool(here) and index == here)


def _ask_functions(
    client: Any, candidate: Any, gains: Gains, calls: Mapping[str, Mapping[str, Any]], names: Container[str]
) -> Iterator[Condition]:
    """Call a version's registered functions, if ``names`` has them: a registry alone cannot make code run."""
    for name, settings in calls.items():
        if name in names:
            ask = function_of(name, key="tracking.conditions", shape=ASKS, takes=3, settings=settings)
            condition = ask(client, candidate, gains, **settings)
            if not isinstance(condition, Condition):
                raise ParamsError(f"tracking.conditions: {name} returned {type(condition).__name__}; it {ASKS}")
            yield condition
        else:
            needed = f"{name} in tracking.conditions, by which the candidate was registered"
            yield Condition("condition", f"params.yaml names no {name}", needed, False)


def rows_of(client: Any, version: Any, *arms: str) -> dict[str, list[Row]]:
    """Return the arms' evaluation rows that were registered with a version; none for an arm that it lacks.

    Raises:
        PromotionRefused: its evaluation changed since it was registered.
    """
    files = _read_evaluation(client, version, {f"{arm}.jsonl" for arm in arms})
    return {arm: files.get(f"{arm}.jsonl", []) for arm in arms}


def record_of(client: Any, version: Any) -> dict[str, Any]:
    """Return what a version's evaluation was played with (tasks/evaluation_record.py); {} from an older harr."""
    record: dict[str, Any] = read_registered(client, version, PLAYED)
    return record


def read_registered(client: Any, version: Any, name: str) -> Any:
    """Return the named file of a version's registered evaluation; {} if there is none."""
    return _read_evaluation(client, version, {name}).get(name, {})


def _read_evaluation(client: Any, version: Any, names: Container[str]) -> dict[str, Any]:
    """Return the content of those named files that exist; the evaluation is copied once for all."""
    if not version.run_id:  # another program registered it
        return {}
    files = [Path(file.path).name for file in client.list_artifacts(version.run_id, "evaluation")]
    wanted = [name for name in files if name in names]
    if not wanted:
        return {}
    with tempfile.TemporaryDirectory() as place:
        folder = copy_artifacts(client, version.run_id, "evaluation", Path(place))
        digest = fingerprint({path.name: sha256(path) for path in sorted(folder.iterdir())})
        if version.tags.get("results", digest) != digest:
            raise PromotionRefused(
                f"the evaluation of version {version.version} of {version.name} in MLflow's artifact store is not what "
                "was registered; restore it there, or run `dvc repro -f -s merge`"
            )
        return {name: (read_jsonl if name.endswith(".jsonl") else read_json)(folder / name) for name in wanted}
