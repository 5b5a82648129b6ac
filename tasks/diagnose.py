"""The command `harr diagnose`, beside the stages: what training could add, before anybody pays for it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import pstdev
from typing import TYPE_CHECKING, Any

import numpy as np

from harr.arms import ARMS
from harr.errors import CorpusError, ParamsError
from harr.io.files import write_json
from harr.params import Params
from harr.types import Episode, Question
from tasks.evaluate import arm_pipelines, rounded, with_arms
from tasks.paths import PLACES, QUESTIONS

if TYPE_CHECKING:
    from harr.diagnose.advice import Figures
    from harr.evaluate.summary import Summary

DEPTHS = (1, 2, 4)
"""Depths at which gold is looked for, in pools."""
ROLLED_OUT = 64
"""Maximum number of questions of which rollouts are compared."""
Found = dict[str, list[tuple[str, ...]]]


def diagnose(params: Params, file: Path | None, count: int, out: Path) -> list[str]:
    """Play the untrained arms and some rollouts on questions that are no test; write a page and its JSON.

    Needs what stages download, embed and index have made, and asks the generator of params.yaml.

    Args:
        params: those of the run that is thought of.
        file: questions; None: data/questions/validation.jsonl or, where there are none, the training questions.
        count: maximum number of questions, drawn by ``seed``.
        out: folder of index.html and diagnosis.json.

    Returns:
        What to do, a sentence each.

    Raises:
        CorpusError: no question could be scored. IndexMismatch: vectors or index are of another corpus or encoder.
    """
    from harr.diagnose.advice import advice, as_json
    from harr.report.diagnosis import write_diagnosis

    path, questions = some_questions(file, count, params.seed)
    params = with_arms(params, untrained_arms(params))
    episodes, found, rows = play_untrained(params, questions)
    figures, summary = figures_of(params, questions, episodes, found, rows)
    sentences = advice(figures)
    write_json(
        out / "diagnosis.json",
        rounded({"questions": len(questions), "file": str(path), "advice": sentences, **as_json(figures), **summary}),
    )
    write_diagnosis(out / "index.html", figures, sentences, summary, len(questions), str(path))
    return sentences


def some_questions(file: Path | None, count: int, seed: int) -> tuple[Path, list[Question]]:
    """Return the path of the questions and at most ``count`` of them, drawn by ``seed``.

    Raises:
        CorpusError: there are none.
    """
    from harr.corpus.passages import read_questions
    from harr.datasets.local import read_question_file

    validation = QUESTIONS / "validation.jsonl"
    own = validation if validation.exists() and validation.stat().st_size else QUESTIONS / "train.jsonl"
    questions = list(read_question_file(file)) if file else read_questions(own)
    if not questions:
        raise CorpusError(f"{file or own} holds no question; name a file of questions with --questions")
    drawn = np.random.default_rng(seed).permutation(len(questions))[:count]
    return file or own, [questions[number] for number in sorted(drawn.tolist())]


def untrained_arms(params: Params) -> list[str]:
    """Return the arms that need no training and go with these parameters, in the order of the table."""
    plain = [name for name, arm in ARMS.items() if not (arm.trained or arm.demonstrations)]
    return [name for name in plain if _fits(params, name)]


def _fits(params: Params, name: str) -> bool:
    try:
        with_arms(params, [name])
    except ParamsError:
        return False
    return True


def play_untrained(
    params: Params, questions: Sequence[Question]
) -> tuple[dict[str, list[Episode]], dict[str, Found], dict[str, list[dict[str, Any]]]]:
    """Return per arm its episodes, what it found at every depth, and a row of metrics per question."""
    from harr.builders.pipeline import build_reward
    from harr.builders.setup import open_players, open_writer
    from harr.builders.writers import build_generator, build_reader
    from harr.diagnose.measure import DeepRetriever
    from harr.evaluate.play import Game

    pipelines, writes = arm_pipelines(params), params.writer_learns
    reward = build_reward(params.reward, params.encoder, params.seed, PLACES)
    reader = build_reader(params.evaluate.reader, params.seed, PLACES)
    generator = None if writes else build_generator(params.generator, params.seed, PLACES)
    depth, picking = max(DEPTHS) * params.retriever.pool, params.pipeline.name == "pick"
    episodes: dict[str, list[Episode]] = {}
    found: dict[str, Found] = {}
    rows: dict[str, list[dict[str, Any]]] = {}
    with open_players(params, PLACES, questions, candidates=params.retriever.candidates) as player:
        for name, arm in params.evaluate.arm_table.items():
            deep = DeepRetriever(player(arm, None), params.retriever.k, depth)
            writer = open_writer(params, PLACES, arm, None) if writes else generator
            game = Game(name, pipelines[name], deep, writer, reader)
            episodes[name] = game.play(questions, batch_size=params.evaluate.batch_size)
            rows[name] = game.rows(episodes[name], reward.means(episodes[name]), picking=picking)
            found[name] = deep.found
    return episodes, found, rows


def figures_of(
    params: Params,
    questions: Sequence[Question],
    episodes: Mapping[str, list[Episode]],
    found: Mapping[str, Found],
    rows: Mapping[str, list[dict[str, Any]]],
) -> "tuple[Figures, Summary]":
    """Return the figures that advice is drawn from, and the arms with their intervals."""
    from harr.corpus.passages import read_questions
    from harr.diagnose.advice import Figures
    from harr.diagnose.measure import all_gold_at, ambiguous_queries, detectable_gain, questions_needed
    from harr.evaluate.summary import contrast, headline, summarise
    from harr.evaluate.tables import label

    resamples, seed = params.evaluate.resamples, params.seed
    summary = summarise(
        {name: [own] for name, own in rows.items()}, baseline=params.baseline, resamples=resamples, seed=seed
    )
    lead = headline(summary)
    means = {name: metrics[lead]["mean"] for name, metrics in summary["arms"].items() if lead in metrics}
    rivals = sorted((name for name in means if not ARMS[name].ceiling), key=lambda name: -means[name])
    best, dense = rivals[0], params.baseline
    scores = {name: [row.get(lead, 0.0) for row in rows[name]] for name in rivals}
    differences = max(
        ([ours - theirs for ours, theirs in zip(scores[best], scores[name], strict=True)] for name in rivals[1:]),
        key=pstdev,
        default=scores[best],
    )
    gain = contrast([rows[best]], [rows[dense]], resamples=resamples, seed=seed)[lead] if best != dense else {}
    tests = len(read_questions(QUESTIONS / "test.jsonl"))
    pool = params.retriever.pool
    deepest = max(found, key=lambda name: _share(all_gold_at(questions, found[name], pool)))
    depths = [n * pool for n in DEPTHS] if "all_gold" in summary["arms"][deepest] else []
    pools = {depth: _share(all_gold_at(questions, found[deepest], depth)) for depth in depths}
    outcomes = roll_out(params, questions[:ROLLED_OUT])
    figures = Figures(
        metric=label(lead),
        best=best,
        means=means,
        dense=dense,
        gain_of_best={key: gain[key] for key in ("gain", "low", "high")} if gain else {},
        pool=pool,
        all_gold=pools,
        found=max((m["all_gold"]["mean"] for m in summary["arms"].values() if pools), default=0.0),
        **ambiguous_queries(episodes[dense]),
        **outcomes,
        detectable=detectable_gain(differences, params.evaluate.max_questions or tests),
        needed=questions_needed(differences, 0.05),
        method=params.train.method,
    )
    return figures, summary


def _share(rows: Sequence[tuple[str, float]]) -> float:
    return sum(value for _, value in rows) / len(rows) if rows else 0.0


def roll_out(params: Params, questions: Sequence[Question]) -> dict[str, float]:
    """Return the shares of questions whose sampled rollouts disagree, and whose rollouts are all right."""
    from harr.builders.setup import open_setup
    from harr.filter import try_questions

    section = params.filter.model_copy(update={"keep": "disagreeing"})
    with open_setup(params, PLACES, QUESTIONS / "train.jsonl") as setup:
        rows = try_questions(section, setup, questions, params.seed)
    return {
        "disagreeing": sum(row["kept"] for row in rows) / len(rows),
        "all_right": sum(row["reason"] == "all right" for row in rows) / len(rows),
    }
