"""The arm of the table that is proposed as champion, and its version in the registry."""

import shutil
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from harr.arms import TRAINED
from harr.errors import DamagedFile, ParamsError, PromotionRefused, StaleState
from harr.evaluate.tables import label
from harr.io.files import read_jsonl
from harr.params import Params
from tasks.evaluate import evaluation_frame, log_nothing, summarise_arms, write_evaluation
from tasks.evaluation_outputs import deciding_metric, summary_here
from tasks.evaluation_record import PLAYED, check_played, corpus_facts
from tasks.expectations.process import expect
from tasks.merge import export_arm, version_tags
from tasks.paths import EVALUATION, QUESTIONS, WORK
from tasks.play import draw_test_questions, play_arms
from tasks.registry.register import CANDIDATE, ROLLED_BACK, register, results_of
from tasks.tracking.client import open_client
from tasks.tracking.errors import look_up, service
from tasks.tracking.inputs import check_settings
from tasks.tracking.run import tracked_run

Row = dict[str, Any]


def propose_arm(params: Params, arm: str = "") -> str:
    """Return the number of an arm's version, registering it if needed; "" means the candidate.

    Without a name it is the best arm of the evaluation here, if the candidate was registered with that. An untrained
    arm is first played, with the other untrained ones, if stage evaluate has not run: the first time, and after every
    change.

    Raises:
        ParamsError: there is no such arm, or it cannot be champion.
        PromotionRefused: it was rolled back and not asked for by name, or was not played.
        HarrError: as in :func:`tasks.registry.candidate.keep_candidate`.
    """
    if arm and arm not in params.proposals:
        raise ParamsError(f"--arm {arm} cannot be champion; of evaluate.arms these can: {', '.join(params.proposals)}")
    best = "" if arm else _best_here(params)
    name = arm or best
    if name in ("", TRAINED):
        return ""
    if not params.evaluate.arm_table[name].trained and _is_to_be_played(params, name):
        _play_untrained(params)
    if not (EVALUATION / f"{name}.jsonl").exists():
        raise PromotionRefused(f"{EVALUATION} has no rows of arm {name}; run `dvc repro`")
    return _register(params, name, named=not best)


def _best_here(params: Params) -> str:
    """Return the best arm of the evaluation here; "" without one, or if the candidate is of another."""
    if len(params.proposals) == 1 or not (EVALUATION / PLAYED).exists():
        return ""
    with service():
        candidate = look_up(open_client(params).get_model_version_by_alias, params.tracking.registered_model, CANDIDATE)
    if candidate and candidate.tags.get("results") != results_of(params, EVALUATION):
        return ""
    metric = deciding_metric(params)
    best = best_arm(metric, {arm: _read_rows(arm) for arm in params.proposals})
    print(f"best arm of the table in {label(metric)}: {best}; `harr promote --arm NAME` proposes another")
    return best


def best_arm(metric: str, played: Mapping[str, Sequence[Row]]) -> str:
    """Return the arm with the best mean over the questions that all have scores for, the first of equal ones.

    It is `trained` if there are none.

    >>> rows = {arm: [{"id": "q", "recall": score}] for arm, score in (("bm25", 0.5), ("hybrid", 0.6), ("trained", 0.6))}
    >>> best_arm("recall", rows)
    'hybrid'
    """
    scored = {arm: {row["id"]: row[metric] for row in rows if metric in row} for arm, rows in played.items()}
    scored = {arm: scores for arm, scores in scored.items() if scores}
    shared = set.intersection(*map(set, scored.values())) if scored else set()
    means = {arm: fmean(scores[name] for name in shared) for arm, scores in scored.items() if shared}
    return max(means, key=lambda arm: means[arm], default=TRAINED)


def _read_rows(arm: str) -> list[Row]:
    path = EVALUATION / f"{arm}.jsonl"
    return read_jsonl(path) if path.exists() else []


def _register(params: Params, arm: str, *, named: bool) -> str:
    """Return the version of an arm with the evaluation here, making and registering it if needed.

    Raises:
        PromotionRefused: it was rolled back and is not ``named``.
    """
    name, folder = params.tracking.registered_model, WORK / "promote"
    if params.evaluate.arm_table[arm].trained:
        check_settings(params)
    export_arm(params, arm, folder)
    try:
        tags, figures = version_tags(params, folder), summary_here()
        with tracked_run("register", params) as run:
            version = register(run, params, "retriever", folder, EVALUATION, tags, figures, proposes=False)
            run.tag(version=version)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    with service():
        client = open_client(params)
        if ROLLED_BACK in client.get_model_version(name, version).tags:
            if not named:
                raise PromotionRefused(
                    f"version {version} of {name}, {arm}, was rolled back; `harr promote --arm {arm}` promotes it again"
                )
            client.delete_model_version_tag(name, version, ROLLED_BACK)
    return version


def _is_to_be_played(params: Params, arm: str) -> bool:
    """Return whether an arm lacks rows for the files here, and playing it replaces no evaluation of ``trained``."""
    if (EVALUATION / f"{TRAINED}.jsonl").exists():
        return False
    try:
        check_played(params)
    except (DamagedFile, StaleState):
        return True
    return not (EVALUATION / f"{arm}.jsonl").exists()


def _play_untrained(params: Params) -> None:
    """Play the untrained arms of the table, since stage evaluate has not."""
    table = params.evaluate.arm_table
    trained = [name for name, arm in table.items() if arm.trained or name not in params.proposals]
    untrained = tuple(arm for arm in params.evaluate.arms if getattr(arm, "name", arm) not in trained)
    own = params.model_copy(update={"evaluate": params.evaluate.model_copy(update={"arms": untrained})})
    rows, episodes = play_arms(own, draw_test_questions(params, QUESTIONS / "test.jsonl"), log_nothing, model=None)
    figures = {**summarise_arms(own, rows), **expect("evaluation", evaluation_frame(rows)), "corpus": corpus_facts()}
    write_evaluation(params, rows, episodes, figures)
