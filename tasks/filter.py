"""Stage filter: the training questions whose rollouts disagree."""

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from harr.errors import ParamsError
from harr.io.files import finish, write_json
from harr.params import Params
from harr.types import Log
from tasks.common import filter_suite, report_usage
from tasks.expectations.process import expect
from tasks.filter_outputs import filtered_frame, plot_filter, preferences_frame, write_preferences_page
from tasks.paths import FILTERED, METRICS, PLACES, QUESTIONS, WORK
from tasks.runtime import locks
from tasks.runtime.command import run_command
from tasks.runtime.stage import run_stage
from tasks.tracking.run import Run


def filter_training_questions(params: Params, log: Log) -> dict[str, float]:
    """Try training questions until enough are found that the method can learn from."""
    from harr.builders.methods import method_of
    from harr.builders.setup import open_setup
    from harr.compute import distributed

    if params.train.prefers and distributed.count() > 1:
        raise ParamsError("train.method leret samples in one process: `python -m tasks.filter`; or filter.preferences")
    prepare = method_of(params.train).prepare
    with open_setup(params, PLACES, QUESTIONS / "train.jsonl") as setup:
        figures = prepare(params.filter, setup, FILTERED, WORK / "filter", log, params.seed)
        sampled = setup.sample.opened if setup.sample else {}
        generators = {f"generator at {temperature:g}": sampler for temperature, sampler in sampled.items()}
        report_usage(log, generator=setup.generator, **generators, judge=setup.reward, sources=setup.retriever)
    return figures


def join_filtered(folders: Sequence[Path]) -> str:
    """Join the parts of leret that several machines sampled to data/filtered, with all other outputs of the stage.

    Returns:
        What was joined, in a line.
    """
    from harr.preferences.join import join_parts

    figures = join_parts(folders, FILTERED, WORK / "filter")
    figures |= expect("preferences", preferences_frame())
    write_json(METRICS / "filter.json", {name: round(value, 6) for name, value in figures.items()})
    plot_filter()
    write_preferences_page()
    return (
        f"joined {len(folders)} parts: {figures['tried']:.0f} questions tried, {figures['kept']:.0f} to learn from, "
        f"{figures['pairs']:.0f} pairs and {figures['pairs_held_out']:.0f} held out"
    )


def filter(params: Params, run: Run) -> None:
    """Keep the training questions whose rollouts disagree; of leret, the prompts whose queries do."""
    figures = filter_training_questions(params, run.log)
    suite = filter_suite(params)
    counts = expect(suite, preferences_frame() if suite == "preferences" else filtered_frame())
    run.record("filter", figures | counts)
    run.artifact(plot_filter(), "plots")
    if suite == "preferences":
        run.artifact(write_preferences_page())
    run.dataset("train questions", QUESTIONS / "train.jsonl", "training")


def join(params: Params) -> None:
    """Do what every further process of `accelerate launch -m tasks.filter` does."""
    filter_training_questions(params, lambda step, values: None)


def join_parts(folders: Sequence[Path]) -> None:
    """Write data/filtered from the folders of all parts, and print the commands for DVC."""
    with locks.lock_stage("filter"):
        print(join_filtered(folders))
    print("now: dvc commit -f filter")


def main() -> None:
    """Be the command `python -m tasks.filter`, with --join or without."""
    parser = argparse.ArgumentParser("python -m tasks.filter", description=filter.__doc__)
    what = "join the parts of filter.preferences that several machines have sampled: data/filtered of every part"
    parser.add_argument("--join", nargs="+", type=Path, metavar="FOLDER", help=what)
    if folders := parser.parse_args().join:
        run_command(lambda: join_parts(folders))
    else:
        run_stage("filter", filter, checks=True, join=join, end=partial(finish, WORK / "filter"))


if __name__ == "__main__":
    main()
