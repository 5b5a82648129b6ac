"""Stage index: `python -m flows.index`."""

from prefect import flow

from flows.runtime.command import main
from harr.io.files import finish
from harr.params import Params
from tasks.expectations.process import expect
from tasks.index import decide_training, index_frame, index_passages
from tasks.paths import VECTORS, WORK
from tasks.tracking.run import tracked_run


@flow(name="index")
async def index() -> None:
    """Put vectors and texts into Milvus, the row count is checked; and find which passage names which title."""
    params = Params.load()
    with tracked_run("index", params) as run:
        figures = index_passages(params)
        figures |= decide_training(params)
        run.record("index", figures | expect("index", index_frame(figures)))
        run.dataset("vectors", VECTORS, "index")
    finish(WORK / "index")


if __name__ == "__main__":
    main(index, checks=True)
