"""What more training questions would add: a learning curve from parts of them, and a forecast by a power law."""

import random
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harr.arms import ARMS, method_arm
from harr.errors import CorpusError, ParamsError
from harr.io.files import write_json
from harr.params import Params
from harr.params.train import ArmTrainParams, PolicyParams
from harr.types import Question
from tasks.arms import without_reader
from tasks.paths import PLACES, QUESTIONS, VALIDATION
from tasks.play import arm_pipelines, round_figures

PARTS = (8, 4, 2, 1)
"""Divisors of the number of training questions; every part contains the smaller ones."""
SEVERAL = 5
"""Minimum number of questions in the smallest part for a curve."""
TREES = "harr_trees.boosted:METHOD"
"""Method of the plug-in trees, which learns from links."""
Array = NDArray[np.float64]


def measure_curve(params: Params, count: int, out: Path) -> list[str]:
    """Train on parts of the training questions, play up to ``count`` validation questions, and forecast.

    The method is InfoNCE, with the steps of params.yaml for every part; or boosted trees, if there are links and the
    plug-in trees is installed.

    Returns:
        A line for every part and for every forecast; curve.json in ``out`` has the same.

    Raises:
        CorpusError: there are too few questions.
        ParamsError: the retriever is not trained by a method with InfoNCE as a baseline.
    """
    from harr.corpus.passages import read_questions
    from harr.corpus.sample import draw_questions
    from harr.evaluate.intervals import resample
    from harr.evaluate.tables import label, percent, spread

    arm = "boosted" if params.retriever.link_features and find_spec("harr_trees") else "infonce"
    if not isinstance(params.train, PolicyParams) and arm == "infonce":
        raise ParamsError(f"--curve trains infonce, which train.method {params.train.method} has no settings for")
    train = [question for question in read_questions(QUESTIONS / "train.jsonl") if question.gold_ids]
    known = [question for question in read_questions(VALIDATION) if question.gold_ids]
    validation = draw_questions(known, count, params.seed)
    if len(train) < SEVERAL * PARTS[0] or not validation:
        raise CorpusError(
            f"--curve needs {SEVERAL * PARTS[0]} training questions with gold and some of validation with gold; here are {len(train)} "
            f"and {len(validation)}; add questions, or set download.validation_questions"
        )
    order = random.Random(f"{params.seed}/curve").sample(train, len(train))
    parts = [order[: len(train) // part] for part in PARTS]
    lead, scores = score_parts(params, arm, parts, validation)
    golds = [question.gold_documents for question in validation]
    draws = resample([*scores], golds, resamples=params.evaluate.resamples, seed=params.seed)
    sizes = [len(part) for part in parts]
    points = [
        {"questions": size, "mean": float(mean), "low": low, "high": high}
        for size, mean, (low, high) in zip(sizes, draws.means, draws.interval(), strict=True)
    ]
    forecasts = [
        {"more": more, **forecast(draws.means, draws.values, sizes, more, len(validation))}
        for more in (len(train), 3 * len(train))
    ]
    figures = {"arm": arm, "metric": lead, "validation": len(validation), "points": points, "forecasts": forecasts}
    write_json(out / "curve.json", round_figures(figures))
    of = f"{label(lead)} of {len(validation):,} validation questions"
    return [
        *(f"{arm} with {one['questions']:,} training questions: {spread(one, 'mean')} % {of}" for one in points),
        *(
            f"with {one['more']:,} more: {percent(one['gain'], '+.1f')} [{percent(one['low'], '+.1f')}, "
            f"{percent(one['high'], '+.1f')}] points"
            for one in forecasts
        ),
    ]


def score_parts(
    params: Params, arm: str, parts: Sequence[Sequence[Question]], validation: Sequence[Question]
) -> tuple[str, Array]:
    """Return the leading metric, and its values, parts x validation questions, after a training on every part."""
    from dataclasses import replace

    from harr.builders.generators import build_generator
    from harr.builders.methods import METHODS, method_of
    from harr.builders.players import arm_params, open_players
    from harr.builders.setup import open_setup
    from harr.evaluate.play import Game
    from harr.evaluate.summary import HEADLINES

    record = method_arm(TREES, {}) if arm == "boosted" else ARMS[arm]
    run = arm_params(without_reader(params) if getattr(params.pipeline, "reader", False) else params, record)
    pipeline = arm_pipelines(run)["frozen"]
    section = ArmTrainParams.of(run.train, TREES, {}) if arm == "boosted" else run.train
    method = method_of(section) if arm == "boosted" else METHODS[arm]
    rows: list[list[dict[str, Any]]] = []
    with TemporaryDirectory() as folder:
        for number, part in enumerate(parts):
            trained, work = Path(folder, f"{number}"), Path(folder, f"work-{number}")
            with open_setup(run, PLACES, QUESTIONS / "train.jsonl") as setup:
                method.train(section, replace(setup, questions=list(part)), trained, work, _log_nothing, run.seed)
            with open_players(run, PLACES, validation, candidates=run.retriever.candidates) as player:
                generator = build_generator(run.generator, run.seed, PLACES)
                game = Game(f"{arm}, {len(part)}", pipeline, player(record, trained), generator)
                rows.append(game.rows(game.play(validation, batch_size=run.evaluate.batch_size), []))
    lead = next(name for name in HEADLINES if all(name in row for part in rows for row in part))
    return lead, np.array([[row[lead] for row in part] for part in rows])


def _log_nothing(step: int, values: object) -> None:
    """Log nothing."""


def forecast(means: Array, draws: Array, sizes: Sequence[int], more: int, questions: int) -> dict[str, float]:
    """Return the gain from ``more`` training questions: ``gain``, ``low``, ``high``, with 95 %.

    The error, 1 less the score, is assumed to fall as a power of the number of training questions. The interval covers
    the questions played and the exponent: how far the scores lie from the line says how sure that is (Student's t),
    since other training questions might have been drawn.

    >>> errors = 0.8 * np.array([10.0, 20.0, 40.0, 80.0]) ** -0.5
    >>> {name: round(value, 4) for name, value in forecast(1 - errors, 1 - errors[None], [10, 20, 40, 80], 80, 100).items()}
    {'gain': 0.0262, 'low': 0.0262, 'high': 0.0262}

    Args:
        means: scores by part, between 0 and 1.
        draws: draws x parts, resampled scores.
        sizes: numbers of training questions by part, the largest last.
        more: number of questions beyond the largest.
        questions: number of questions played; no error is taken to be less than half of one.
    """
    errors = np.maximum(1 - np.vstack([means[None], draws]), 0.5 / questions)
    middle = np.log(sizes).mean()
    places = np.log(sizes) - middle
    slopes, levels = np.polyfit(places, np.log(errors).T, 1)
    rest, freedom = np.log(errors[0]) - levels[0] - slopes[0] * places, len(sizes) - 2
    spread = np.sqrt((rest**2).sum() / freedom / (places**2).sum())
    slopes[1:] += spread * np.random.default_rng(0).standard_t(freedom, size=len(draws))
    now, then = (np.exp(levels + slopes * (np.log(size) - middle)) for size in (sizes[-1], sizes[-1] + more))
    low, high = np.percentile((now - then)[1:], [2.5, 97.5])
    return {"gain": float((now - then)[0]), "low": float(low), "high": float(high)}
