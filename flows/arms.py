"""Stage arms: `python -m flows.arms`."""

from prefect import flow

from flows.runtime.command import main
from harr.params import Params
from tasks.arms import RUNS, train_arms, train_each
from tasks.common import forget
from tasks.tracking.run import tracked_run


@flow(name="arms")
async def arms() -> None:
    """Train the arms that `full` is compared with, over evaluate.seeds; nothing where none is asked for."""
    params = Params.load()
    with tracked_run("arms", params) as run:
        run.record("arms", train_arms(params, run.log))
    forget(RUNS)


def join(params: Params) -> None:
    """Do what every further process of `accelerate launch -m flows.arms` does."""
    train_each(params, lambda step, values: None, lambda text: None)


if __name__ == "__main__":
    main(arms, join=join)
