"""Stage filter: `python -m flows.filter`; with --join the parts that several machines have sampled become one."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from prefect import flow
from typer import Option

from flows.runtime import locks
from flows.runtime.command import call, run_command, run_stage
from harr.io.files import finish
from harr.params import Params
from tasks.expectations.process import expect
from tasks.filter import (
    filter_suite,
    filter_training_questions,
    filtered_frame,
    join_filtered,
    plot_filter,
    preferences_frame,
    write_preferences_page,
)
from tasks.paths import QUESTIONS, WORK
from tasks.tracking.run import tracked_run


@flow(name="filter")
async def filter() -> None:
    """Keep the training questions whose rollouts disagree; of leret, the prompts whose queries do."""
    params = Params.load()
    with tracked_run("filter", params) as run:
        figures = filter_training_questions(params, run.log)
        suite = filter_suite(params)
        held = expect(suite, preferences_frame() if suite == "preferences" else filtered_frame())
        run.record("filter", figures | held)
        run.artifact(plot_filter(), "plots")
        if suite == "preferences":
            run.artifact(write_preferences_page())
        run.dataset("train questions", QUESTIONS / "train.jsonl", "training")
    finish(WORK / "filter")


def command(
    join: Annotated[list[Path] | None, Option(metavar="FOLDER ...", help="data/filtered of every part")] = None,
) -> None:
    """Keep the training questions that teach; or join the parts (filter.preferences) that several machines sampled."""
    if join:
        run_command(lambda: join_parts(join))
    else:
        run_stage(filter, checks=True, join=beside)


def beside(params: Params) -> None:
    """Do what every further process of `accelerate launch -m flows.filter` does."""
    filter_training_questions.fn(params, lambda step, values: None)


def join_parts(folders: Sequence[Path]) -> None:
    """Write data/filtered from the folders of all parts, and say what DVC must be told."""
    with locks.alone("filter"):
        print(join_filtered(folders))
    print("now: dvc commit -f filter")


if __name__ == "__main__":
    call(command, "python -m flows.filter", sys.argv[1:])
