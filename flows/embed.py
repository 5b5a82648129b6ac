"""Stage embed: `python -m flows.embed`."""

from prefect import flow

from flows.runtime.command import main
from harr.io.files import finish
from harr.params import Params
from tasks.embed import embed_passages, vectors_frame
from tasks.expectations.process import expect
from tasks.paths import CORPUS, WORK
from tasks.tracking.run import tracked_run


@flow(name="embed")
async def embed() -> None:
    """Turn every passage into a vector; a killed run goes on at the shard where it was."""
    params = Params.load()
    with tracked_run("embed", params) as run:
        figures = embed_passages(params)
        run.record("embed", figures | expect("vectors", vectors_frame()))
        run.dataset("corpus", CORPUS, "corpus")
    finish(WORK / "embed")


if __name__ == "__main__":
    main(embed, checks=True)
