"""MLflow: what ran, on what, with which figures. The only module that imports mlflow.

One parent run per pipeline execution, a child per stage. A stage reports through :class:`Run`.
"""

import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harr.errors import ServiceUnavailable
from harr.files import write_json
from harr.params import Params
from tasks.execution import execution_id
from tasks.fingerprints import digest_of, revisions

FLUSH_SECONDS = 5.0
BATCH = 900


@dataclass
class Run:
    """An open run of one stage. ``log`` is harr's ``Log``: points are buffered and written in batches."""

    client: Any
    run_id: str
    parent_id: str
    _points: list[Any] = field(default_factory=list)
    _flushed: float = field(default_factory=time.monotonic)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Keep one point per value; they reach the store every few seconds."""
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        self._points += [Metric(name, float(value), now, step) for name, value in values.items()]
        if time.monotonic() - self._flushed > FLUSH_SECONDS:
            try:
                self.flush()
            except ServiceUnavailable as error:  # hours of training do not end for this; the stage's end tries again
                print(f"warning: {error}; figures are kept for later", file=sys.stderr)

    def flush(self) -> None:
        """Write the buffered points.

        Raises:
            ServiceUnavailable: the tracking server does not answer; the points are kept.
        """
        self._flushed = time.monotonic()
        with service():
            while self._points:
                self.client.log_batch(self.run_id, metrics=self._points[:BATCH])
                del self._points[:BATCH]

    def record(self, stage: str, figures: Mapping[str, float]) -> None:
        """The stage's own figures: metrics/<stage>.json for DVC, and the run's metrics."""
        write_json(Path("metrics") / f"{stage}.json", {name: round(float(v), 6) for name, v in figures.items()})
        self.log(0, {f"{stage}.{name}": value for name, value in figures.items()})

    def dataset(self, name: str, path: Path, context: str) -> None:
        """Note an input by name, place and hash."""
        from mlflow.entities import Dataset, DatasetInput, InputTag

        digest = digest_of(path)[:32]
        data = Dataset(name=name, digest=digest, source_type="local", source=f'{{"uri": "{path}"}}')
        self.client.log_inputs(self.run_id, [DatasetInput(data, [InputTag("mlflow.data.context", context)])])

    def artifact(self, path: Path, folder: str = "") -> None:
        """Keep a file or folder with the run."""
        keep = self.client.log_artifacts if path.is_dir() else self.client.log_artifact
        keep(self.run_id, str(path), folder or None)

    def tag(self, **tags: str) -> None:
        """Set tags of this run."""
        for name, value in tags.items():
            self.client.set_tag(self.run_id, name, value)


@contextmanager
def tracked_run(stage: str, params: Params) -> Iterator[Run]:
    """A child run for one stage, under the parent run of this pipeline execution.

    It ends FINISHED, FAILED on an exception, or KILLED on a signal; so does the parent.
    """
    with service():
        client = open_client(params)
        experiment = _experiment(client, params.tracking.experiment)
        parent = _parent(client, experiment)
        tags = {"mlflow.parentRunId": parent, "mlflow.runName": stage, "harr.stage": stage, **revisions()}
        run = Run(client, client.create_run(experiment, tags=tags).info.run_id, parent)
        _log_params(client, run.run_id, params)
    status = "KILLED"
    try:
        with service():
            yield run
        status = "FINISHED"
    except Exception:
        status = "FAILED"
        raise
    finally:
        with service():
            run.flush()
            client.set_terminated(run.run_id, status)
            client.set_terminated(parent, status)


@contextmanager
def service() -> Iterator[None]:
    """An MLflow server that does not answer is a ``ServiceUnavailable`` in one line."""
    from mlflow.exceptions import MlflowException

    try:
        yield
    except MlflowException as error:
        if "API request to" not in error.message:
            raise
        raise ServiceUnavailable(
            f"the MLflow server does not answer ({error.message.split(' failed')[0]}); "
            "start it, or clear tracking.uri to keep runs in mlflow.db"
        ) from None


def open_client(params: Params) -> Any:
    """A client of the tracking server, or of sqlite:///mlflow.db."""
    from mlflow import MlflowClient

    for noisy in ("alembic", "mlflow.store.db.utils", "mlflow.tracking", "mlflow.store.model_registry"):
        logging.getLogger(noisy).setLevel(logging.ERROR)
    return MlflowClient(params.tracking.uri or os.environ.get("MLFLOW_TRACKING_URI", "sqlite:///mlflow.db"))


def found(look_up: Callable[..., Any], *names: str) -> Any | None:
    """What the store answers, or None where it has no such thing."""
    from mlflow.exceptions import MlflowException

    try:
        return look_up(*names)
    except MlflowException as error:
        if error.error_code in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):
            return None
        raise


def taken(make: Callable[..., Any], *names: str, **values: str) -> bool:
    """Whether the store did something that it does only once; False where another was first."""
    from mlflow.exceptions import MlflowException

    try:
        make(*names, **values)
    except MlflowException as error:
        if error.error_code in ("RESOURCE_ALREADY_EXISTS", "RESOURCE_DOES_NOT_EXIST"):
            return False
        raise
    return True


def _experiment(client: Any, name: str) -> str:
    from mlflow.exceptions import MlflowException

    found = client.get_experiment_by_name(name)
    if found:
        return str(found.experiment_id)
    try:
        return str(client.create_experiment(name))
    except MlflowException:  # another process made it in between
        return str(client.get_experiment_by_name(name).experiment_id)


def _parent(client: Any, experiment: str) -> str:
    """The parent run of this execution: found by its tag, else made."""
    key = execution_id()
    found = client.search_runs([experiment], f"tags.`harr.execution` = '{key}'", max_results=1)
    if found:
        client.update_run(found[0].info.run_id, status="RUNNING")
        return str(found[0].info.run_id)
    name = time.strftime("pipeline %Y-%m-%d %H:%M:%S")
    tags = {"harr.execution": key, "mlflow.runName": name, **revisions()}
    return str(client.create_run(experiment, tags=tags).info.run_id)


def _log_params(client: Any, run_id: str, params: Params) -> None:
    from mlflow.entities import Param

    flat = [Param(key, str(value)[:500]) for key, value in flatten(params.model_dump(mode="json"))]
    for start in range(0, len(flat), 100):
        client.log_batch(run_id, params=flat[start : start + 100])


def flatten(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted names of all leaves.

    >>> list(flatten({"train": {"steps": 3}, "seed": 0}))
    [('train.steps', 3), ('seed', 0)]
    """
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
