"""Stage filter: `python -m flows.filter`."""

from prefect import flow

from flows.common import main
from harr.files import finish
from harr.params import Params
from tasks.checks import expect
from tasks.download import QUESTIONS
from tasks.filter import (
    WORK,
    filter_suite,
    filter_training_questions,
    filtered_frame,
    plot_filter,
    preferences_frame,
    write_preferences_page,
)
from tasks.tracking import tracked_run


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
        finish(WORK)


if __name__ == "__main__":
    main(filter, checks=True)
