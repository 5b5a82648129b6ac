"""Stage train: `python -m flows.train`."""

from prefect import flow

from flows.runtime.command import main
from harr.params import Params
from tasks.common import forget
from tasks.paths import FILTERED, WORK
from tasks.tracking.run import tracked_run
from tasks.train import plot_training, summary, train_policy, training_figure, write_stats


@flow(name="train")
async def train() -> None:
    """Train the policy by the method of params.yaml; a killed run goes on at its last checkpoint."""
    params = Params.load()
    with tracked_run("train", params) as run:
        history = train_policy(params, run.log)
        figure = training_figure(params)
        run.record("train", summary(history, figure))
        run.artifact(write_stats(history))
        for plot in plot_training(history, figure):
            run.artifact(plot, "plots")
        run.dataset("kept questions", FILTERED / "questions.jsonl", "training")
    forget(WORK / "train")


def join(params: Params) -> None:
    """Do what every further process of `accelerate launch -m flows.train` does."""
    train_policy.fn(params, lambda step, values: None)


if __name__ == "__main__":
    main(train, join=join)
