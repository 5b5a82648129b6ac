"""Stage index: `python -m flows.index`."""

from prefect import flow

from flows.common import main
from harr.params import Params
from tasks.embed import VECTORS
from tasks.index import index_passages
from tasks.tracking import tracked_run


@flow(name="index")
async def index() -> None:
    """Put vectors and texts into Milvus; the row count is checked."""
    params = Params.load()
    with tracked_run("index", params) as run:
        run.record("index", index_passages(params))
        run.dataset("vectors", VECTORS, "index")


if __name__ == "__main__":
    main(index)
