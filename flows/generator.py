"""Stage generator: `python -m flows.generator`."""

from prefect import flow

from flows.runtime.command import main
from harr.io.files import finish
from harr.params import Params
from tasks.generator import make_generator
from tasks.paths import WORK
from tasks.tracking.run import tracked_run


@flow(name="generator")
async def generator() -> None:
    """Train the language model of `generator.kind: small_lm` or `warmstart`; of others only note what plays."""
    params = Params.load()
    with tracked_run("generator", params) as run:
        run.record("generator", make_generator(params, run.log))
    finish(WORK / "generator")


if __name__ == "__main__":
    main(generator)
