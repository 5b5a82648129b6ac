"""Stage arms: the trained arms that `full` is compared with, and its further seeds."""

import shutil
from collections.abc import Callable
from pathlib import Path

from prefect import task

from harr.arms import FULL
from harr.io.files import publish, write_json
from harr.params import Params
from harr.types import Log
from tasks.common import GPU_TASK
from tasks.paths import ADAPTER, ARMS, FILTERED, PLACES, VALIDATION, WORK
from tasks.train import mean_reward, validation_summary

DRAFT, RUNS = WORK / "arms", WORK / "arm-runs"
LAST = "_last_10"


def trained_runs(params: Params) -> dict[str, list[Path]]:
    """Return the folders of every trained arm, one per seed; that of ``full`` with the first seed is stage train's."""
    seeds = range(params.seed, params.seed + params.evaluate.seeds)
    full = [ADAPTER, *(ARMS / f"{FULL}-{seed}" for seed in seeds[1:])]
    own = {name: [ARMS / f"{name}-{seed}" for seed in seeds] for name in params.evaluate.arm_table} | {FULL: full}
    return {
        name: [folder / arm.inside for folder in full] if arm.inside else own[name]
        for name, arm in params.evaluate.arm_table.items()
        if arm.trained
    }


@task(**GPU_TASK)
def train_arms(params: Params, log: Log) -> dict[str, float]:
    """Train every arm and seed that stage train did not; each has the updates and questions of `full`.

    Finished runs are kept under work/, so that a killed stage goes on with the next one.

    Returns:
        Per run, the mean reward of its last ten steps, and what validation told.
    """
    shutil.rmtree(DRAFT, ignore_errors=True)
    figures = train_each(params, log, print)
    write_json(DRAFT / "runs.json", sorted(name for name in figures if name.endswith(LAST)))
    publish(DRAFT, ARMS)
    return figures


def train_each(params: Params, log: Log, tell: Callable[[str], object]) -> dict[str, float]:
    """Do the plain work of ``train_arms``, which further processes share in: adapters in ``DRAFT``, and figures."""
    from harr.builders.methods import METHODS, method_of
    from harr.builders.setup import arm_params, open_setup
    from harr.corpus.passages import read_questions

    runs, questions = trained_runs(params), FILTERED / "questions.jsonl"
    for kind in {params.evaluate.arm_table[name].method for name in runs} - {""}:
        if check := METHODS[kind].check:
            check(read_questions(questions))
    figures: dict[str, float] = {}
    steps = 0
    for name, folders in runs.items():
        arm = params.evaluate.arm_table[name]
        for seed, folder in enumerate(folders, start=params.seed):
            if folder == ADAPTER or arm.inside:
                continue
            tell(f"arm {name}, seed {seed}")
            own = arm_params(params, arm)
            with open_setup(own, PLACES, questions, history=arm.history, validation=VALIDATION) as setup:
                method = METHODS[arm.method] if arm.method else method_of(params.train)
                history = method.train(params.train, setup, DRAFT / folder.name, RUNS, lambda step, values: None, seed)
            figures[f"{folder.name}.{method.figure}{LAST}"] = mean_reward(history[-10:])
            figures |= {f"{folder.name}.{key}": value for key, value in validation_summary(history).items()}
            steps += len(history)
            log(steps, {name: value for name, value in figures.items() if name.startswith(folder.name)})
    return figures | {"runs": float(sum(name.endswith(LAST) for name in figures)), "steps": float(steps)}
