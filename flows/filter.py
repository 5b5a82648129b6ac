"""Stage filter: `python -m flows.filter`."""

from prefect import flow

from flows.common import main
from harr.files import finish
from harr.params import Params
from tasks.checks import expect
from tasks.download import QUESTIONS
from tasks.filter import WORK, filter_training_questions, filtered_frame, plot_filter
from tasks.tracking import tracked_run


@flow(name="filter")
async def filter() -> None:
    """Keep the training questions whose rollouts disagree."""
    params = Params.load()
    with tracked_run("filter", params) as run:
        figures = filter_training_questions(params, run.log)
        held = expect("all_kept" if params.filter.keep == "all" else "filtered", filtered_frame())
        run.record("filter", figures | held)
        run.artifact(plot_filter(), "plots")
        run.dataset("train questions", QUESTIONS / "train.jsonl", "training")
    finish(WORK)


if __name__ == "__main__":
    main(filter, checks=True)
