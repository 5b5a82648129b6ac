"""Stage filter: the training questions whose rollouts disagree."""

from functools import partial

from harr.errors import ParamsError
from harr.io.files import finish
from harr.params import Params
from harr.types import Log
from tasks.common import filter_suite, report_usage
from tasks.expectations.process import expect
from tasks.filter_outputs import filtered_frame, plot_filter, preferences_frame
from tasks.paths import FILTERED, PLACES, QUESTIONS, WORK
from tasks.runtime.stage import main
from tasks.tracking.run import Run


def filter_training_questions(params: Params, log: Log) -> dict[str, float]:
    """Try training questions until enough are found that the method can learn from."""
    from harr.builders.methods import method_of
    from harr.builders.setup import open_setup
    from harr.compute import distributed

    if params.train.prefers and distributed.count() > 1:
        raise ParamsError("train.method leret samples in one process: `python -m tasks.filter`")
    prepare = method_of(params.train).prepare
    with open_setup(params, PLACES, QUESTIONS / "train.jsonl") as setup:
        figures = prepare(params.filter, setup, FILTERED, WORK / "filter", log, params.seed)
        sampled = setup.sample.opened if setup.sample else {}
        generators = {f"generator at {temperature:g}": sampler for temperature, sampler in sampled.items()}
        report_usage(log, generator=setup.generator, **generators, judge=setup.reward, sources=setup.retriever)
    return figures


def filter(params: Params, run: Run) -> None:
    """Keep the training questions whose rollouts disagree; with leret, the prompts whose queries do."""
    figures = filter_training_questions(params, run.log)
    suite = filter_suite(params)
    counts = expect(suite, preferences_frame() if suite == "preferences" else filtered_frame())
    run.record("filter", figures | counts)
    run.artifact(plot_filter(), "plots")
    run.dataset("train questions", QUESTIONS / "train.jsonl", "training")


def join(params: Params) -> None:
    """Do the work of a further process of `accelerate launch -m tasks.filter`."""
    filter_training_questions(params, lambda step, values: None)


if __name__ == "__main__":
    main("filter", filter, checks=True, join=join, end=partial(finish, WORK / "filter"))
