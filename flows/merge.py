"""Stage merge: `python -m flows.merge`."""

from prefect import flow

from flows.runtime.command import main
from harr.params import Params
from tasks.merge import merge_adapter, register_model
from tasks.paths import ADAPTER
from tasks.tracking.run import tracked_run


@flow(name="merge")
async def merge() -> None:
    """Fold the adapter into the model that was trained and register it as the candidate."""
    params = Params.load()
    with tracked_run("merge", params) as run:
        figures = merge_adapter(params)
        run.wait()  # a version cannot be registered later
        version = register_model(run, params)
        run.record("merge", figures)
        run.dataset("adapter", ADAPTER, "merge")
        run.tag(version=version)
        print(f"registered {params.tracking.registered_model} version {version} (alias candidate)")


if __name__ == "__main__":
    main(merge)
