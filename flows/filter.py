"""Stage filter: `python -m flows.filter`; with --join the parts that several machines have sampled become one."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from prefect import flow

from flows.runtime import locks
from flows.runtime.command import main, run_command
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


def join(folders: Sequence[Path]) -> None:
    """Write data/filtered from the folders of all parts, and say what DVC must be told."""
    with locks.alone("filter"):
        print(join_filtered(folders))
    print("now: dvc commit -f filter")


def command() -> None:
    """The stage without arguments; or the parts of several machines, joined."""
    parser = argparse.ArgumentParser(prog="python -m flows.filter", description=filter.__doc__)
    told = "the data/filtered of every part (filter.preferences.num_partitions), to be joined to data/filtered here"
    parser.add_argument("--join", nargs="+", type=Path, default=(), metavar="FOLDER", help=told)
    options = parser.parse_args()
    if options.join:
        run_command(lambda: join(options.join))
    else:
        main(filter, checks=True, arguments=[])


if __name__ == "__main__":
    command()
