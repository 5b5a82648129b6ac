"""Stage arms: the trained arms that `trained` is compared with, and its further seeds."""

import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from harr.io.files import fingerprint, publish, write_json
from harr.params import Params
from harr.params.reward import RewardParams
from harr.types import Log
from tasks.common import forget
from tasks.paths import ADAPTER, ARMS, FILTERED, PLACES, QUESTIONS, VALIDATION, WORK
from tasks.runtime.stage import main
from tasks.tracking.run import Run
from tasks.train import mean_reward, validation_summary
from tasks.trained_runs import TOLD, trained_runs

DRAFT, RUNS = WORK / "arms", WORK / "arm-runs"
LAST = "_last_10"


def train_arms(params: Params, log: Log) -> dict[str, float]:
    """Train every arm and seed that stage train did not; each has the updates and questions of `trained`.

    Finished runs are kept under work/, so a killed stage continues with the next one.

    Returns:
        The mean reward of each run's last ten steps, and its validation.
    """
    shutil.rmtree(DRAFT, ignore_errors=True)
    figures, notes = train_each(params, log, print) if list_due(params) else ({"runs": 0.0, "steps": 0.0}, {})
    write_json(DRAFT / TOLD, notes)
    publish(DRAFT, ARMS)
    return figures


def list_due(params: Params) -> list[tuple[str, int, Path]]:
    """Return the arm, seed and folder of every run that stage train did not make."""
    return [
        (name, seed, folder)
        for name, folders in trained_runs(params).items()
        for seed, folder in enumerate(folders, start=params.seed)
        if folder != ADAPTER and not params.evaluate.arm_table[name].inside
    ]


def train_each(
    params: Params, log: Log, tell: Callable[[str], object]
) -> tuple[dict[str, float], dict[str, dict[str, float]]]:
    """Do the plain work of ``train_arms``, shared with further processes: adapters in ``DRAFT``.

    Returns:
        Figures, and by the name of each run's folder what :func:`read_run_figures` reads.
    """
    from harr.builders.methods import arm_method
    from harr.builders.players import arm_params
    from harr.builders.setup import open_setup
    from harr.corpus.passages import read_questions

    runs, questions = list_due(params), FILTERED / "questions.jsonl"
    methods = {name: arm_method(params, name) for name, _, _ in runs}
    for method, _ in methods.values():
        if method.check:
            method.check(read_questions(questions))
    figures: dict[str, float] = {}
    runs_told: dict[str, dict[str, float]] = {}
    steps = 0
    for name, seed, folder in runs:
        arm = params.evaluate.arm_table[name]
        tell(f"arm {name}, seed {seed}")
        run_params = arm_params(params, arm)
        run_questions = questions if arm.history or params.filter.keep == "all" else filter_own_questions(run_params)
        method, section = methods[name]
        if not method.rewarded and getattr(params.pipeline, "reader", False):
            run_params = without_reader(run_params)
        with open_setup(run_params, PLACES, run_questions, history=arm.history, validation=VALIDATION) as setup:
            work = RUNS / name  # one per arm: arms that differ only in their method share an identity
            history = method.train(section, setup, DRAFT / folder.name, work, lambda step, values: None, seed)
            count = len(setup.questions)
            if run_questions != questions:
                tell(f"arm {name} learnt from {count} questions that its own rollouts disagree on")
        figures[f"{folder.name}.{method.figure}{LAST}"] = mean_reward(history[-10:])
        runs_told[folder.name] = run_figures(history) | {"questions": float(count)}
        figures |= {f"{folder.name}.{key}": value for key, value in runs_told[folder.name].items()}
        figures |= {f"{folder.name}.{key}": value for key, value in validation_summary(history).items()}
        steps += len(history)
        log(steps, {name: value for name, value in figures.items() if name.startswith(folder.name)})
    return figures | {"runs": float(len(runs)), "steps": float(steps)}, runs_told


def without_reader(params: Params) -> Params:
    """Return the parameters of a pick without a reader, rewarded for the gold that it finds."""
    pipeline = params.pipeline.model_copy(update={"reader": False})
    return params.model_copy(update={"pipeline": pipeline, "reward": RewardParams(terms={"recall": 1.0})})


def run_figures(history: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return how little a run had to learn from: the share of its groups whose rollouts all earned the same reward.

    >>> run_figures([{"reward_mean": 0.5, "zero_std_share": 0.25}, {"reward_mean": 1.0, "zero_std_share": 0.75}])
    {'zero_std_share': 0.5}
    """
    return {"zero_std_share": fmean(row["zero_std_share"] for row in history)}


def filter_own_questions(params: Params) -> Path:
    """Return the questions for a retriever without history, filtered once for all seeds by its own rollouts.

    The budget is that of stage filter.
    """
    from harr.builders.methods import method_of
    from harr.builders.setup import open_setup
    from harr.compute import distributed

    with open_setup(params, PLACES, QUESTIONS / "train.jsonl", history=False) as setup:
        out = RUNS / f"filtered-{fingerprint([setup.identity, params.filter.model_dump(), params.seed])}"
        if not distributed.main_process_only(out.is_dir):
            prepare = method_of(params.train).prepare
            prepare(params.filter, setup, out, RUNS / "filter", lambda step, values: None, params.seed)
    return out / "questions.jsonl"


def arms(params: Params, run: Run) -> None:
    """Train the arms that `trained` is compared with, over evaluate.seeds; do nothing if there are none."""
    run.record("arms", train_arms(params, run.log))


def join(params: Params) -> None:
    """Do the work of a further process of `accelerate launch -m tasks.arms`."""
    train_each(params, lambda step, values: None, lambda text: None)


if __name__ == "__main__":
    main("arms", arms, join=join, end=partial(forget, RUNS))
