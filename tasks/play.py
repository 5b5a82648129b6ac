"""Every arm plays the same questions."""

import gc
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harr.arms import TRAINED
from harr.errors import ParamsError
from harr.params import Params
from harr.params.faults import describe_fault
from harr.types import Episode, Log, Pipeline, Question, Retriever
from tasks.common import read_vectors_manifest, report_usage
from tasks.paths import FILTERED, PLACES
from tasks.samples import choose_episodes, player_of, with_tokens
from tasks.trained_runs import trained_runs

if TYPE_CHECKING:
    from harr.evaluate.play import ArmRun, Game
    from harr.rag.scoring.reward import Reward

Row = dict[str, Any]
Rows = list[Row]


def draw_test_questions(params: Params, path: Path) -> list[Question]:
    """Return the questions that every arm plays."""
    from harr.corpus.passages import read_questions
    from harr.corpus.sample import draw_questions

    return draw_questions(read_questions(path), params.evaluate.max_questions, params.seed)


def play_arms(
    params: Params, questions: Sequence[Question], log: Log, *, model: Path | None
) -> tuple[dict[str, list[Rows]], dict[str, list[Episode]]]:
    """Play every arm, and every seed of a trained one, on each kind in ``evaluate.candidates``.

    Returns:
        Question rows per arm, one list per seed; and the episodes of the first seed and the first kind of candidates.
    """
    from harr.builders.generators import build_generator, build_reader
    from harr.builders.pipeline import build_reward
    from harr.builders.players import open_generator, open_players
    from harr.evaluate.play import ArmRun, Game
    from harr.evaluate.rows import join_candidates

    for arm in params.evaluate.arm_table.values():
        if arm.player:  # a wrong one fails before any arm is played
            player_of(arm)
    runs, pipelines, writes = arm_runs(params, model), arm_pipelines(params), params.language_model_learns
    reward = build_reward(params.reward, params.encoder, params.seed, PLACES)
    reader = build_reader(params.evaluate.reader, params.seed, PLACES)
    generator = None if writes else build_generator(params.generator, params.seed, PLACES)

    def game(run: ArmRun, desc: str, retriever: Retriever) -> Game:
        own = open_generator(params, PLACES, run.arm, run.folder) if writes else generator
        return Game(desc, pipelines[run.name], retriever, own, reader)

    rows: list[dict[str, Rows]] = [{} for _ in runs]
    first_episodes: dict[str, list[Episode]] = {}
    several = len(params.evaluate.candidates) > 1
    for candidates in params.evaluate.candidates:
        run_questions = [q for q in questions if q.candidate_ids] if candidates == "question" else questions
        with open_players(params, PLACES, run_questions, candidates=candidates) as player:
            for run, run_rows in zip(runs, rows, strict=True):
                desc = (str(run) if run.folder else run.name) + (f" ({candidates})" if several else "")
                run_game = game(run, desc, player(run.arm, run.folder))
                episodes, run_rows[candidates] = play_run(params, run, run_game, run_questions, reward, log)
                first_episodes.setdefault(run.name, episodes)
                del run_game
                if run.folder or writes:  # a model is a reference cycle; only one may be loaded
                    gc.collect()
    report_usage(log, generator=generator, reader=reader, judge=reward)
    by_arm: dict[str, list[Rows]] = {run.name: [] for run in runs}
    for run, by_candidates in zip(runs, rows, strict=True):
        by_arm[run.name].append(join_candidates(by_candidates))
    return by_arm, first_episodes


def arm_runs(params: Params, model: Path | None) -> "list[ArmRun]":
    """Return the runs of all arms, in order; ``model`` replaces all seeds of ``trained``, whatever its own arm."""
    from harr.builders.fit import facts_of
    from harr.builders.trained import arm_of
    from harr.evaluate.play import ArmRun

    table, folders = dict(params.evaluate.arm_table), dict[str, list[Any]](trained_runs(params))
    if model and TRAINED in table:
        facts = facts_of(model)
        table[TRAINED] = arm_of(facts) if "arm" in facts else table[TRAINED]
        folders[TRAINED] = [model if table[TRAINED].trained else None]
    return [
        ArmRun(name, arm, number, folder)
        for name, arm in table.items()
        for number, folder in enumerate(folders.get(name, [None]))
    ]


def play_run(
    params: Params, run: "ArmRun", game: "Game", questions: Sequence[Question], reward: "Reward", log: Log
) -> tuple[list[Episode], Rows]:
    """Return the episodes of one run, and a row of metrics per question."""
    from harr.evaluate.play import pass_rates

    section = params.evaluate
    episodes, played = choose_episodes(params, run, game, questions, log)
    report_usage(log, **({str(run): game.generator} if params.language_model_learns else {}), sources=game.retriever)
    lost = [step.retrieval.shortened for episode in episodes for step in episode.steps]
    if dropped := sum(shortened.dropped for shortened in lost):
        print(f"{game.desc}: {dropped} hops left out of states longer than retriever.max_tokens")
    if cut := sum(shortened.thought_cut for shortened in lost):
        print(f"{game.desc}: {cut} thoughts cut in states longer than retriever.max_tokens")
    rows = game.rows(episodes, reward.means(episodes), picking=params.pipeline.name == "pick")
    if section.pass_at:
        warmth, ks = section.sample_temperature, section.pass_at
        rates = pass_rates(questions, game, samples=section.samples, ks=ks, seed=run.number, temperature=warmth)
        rows = [row | rates.get(row["id"], {}) for row in rows]
    return episodes, with_tokens(params, rows, played)


def arm_pipelines(params: Params) -> dict[str, Pipeline]:
    """Return the pipeline of every arm; with leret, some are shown demonstrations.

    Raises:
        CorpusError: stage filter found none. IndexMismatch: it searched a different index, or with a different
            ``retriever.function``.
    """
    from harr.builders.pipeline import build_pipeline
    from harr.builders.retrievers import search_identity
    from harr.preferences.collect import check_index
    from harr.preferences.few_shot import read_demonstrations
    from harr.rag.pipelines.leret import LeReT

    pipeline = build_pipeline(params.pipeline, params.generator, PLACES)
    if not isinstance(pipeline, LeReT):
        return dict.fromkeys(params.evaluate.arm_table, pipeline)
    index = read_vectors_manifest()["identity"]
    check_index(FILTERED, search_identity(index, params.retriever))
    return {
        name: replace(pipeline, demonstrations=read_demonstrations(arm.demonstrations, FILTERED))
        for name, arm in params.evaluate.arm_table.items()
    }


def round_figures(value: Any) -> Any:
    """Round figures to six decimals, so that a file changes only when a result does.

    >>> round_figures({"mean": 0.12345678, "n": 3})
    {'mean': 0.123457, 'n': 3}
    """
    if isinstance(value, dict):
        return {key: round_figures(part) for key, part in value.items()}
    if isinstance(value, list):
        return [round_figures(part) for part in value]
    return round(value, 6) if isinstance(value, float) else value


def with_arms(params: Params, arms: Sequence[str]) -> Params:
    """Return the parameters with other ``evaluate.arms``, checked like params.yaml, without ``tracking.baseline``.

    Raises:
        ParamsError: an arm does not fit the other parameters.
    """
    values = params.model_dump(exclude_unset=True)
    by_name = {arm.name: arm.model_dump() for arm in params.evaluate.arms if not isinstance(arm, str)}
    values["evaluate"] = {**values.get("evaluate", {}), "arms": tuple(by_name.get(name, name) for name in arms)}
    values.get("tracking", {}).pop("baseline", None)
    try:
        return Params.model_validate(values)
    except ValueError as error:  # pydantic's, which has the details
        faults = [describe_fault(fault, Params) for fault in getattr(error, "errors", list)()]
        raise ParamsError("; ".join(f"--arms {' '.join(arms)}: {fault}" for fault in faults)) from None
