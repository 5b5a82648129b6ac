"""MLflow: what ran, on what, with which figures. Beside errors.py and traces.py no module imports mlflow.

One parent run per pipeline execution, a child per stage. A stage reports through :class:`Run`.
"""

import json
import logging
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from harr.errors import ParamsError, ServiceUnavailable, bare
from harr.io.files import write_json
from harr.params import Params
from tasks.tracking.errors import service, uploading
from tasks.tracking.execution import execution_id
from tasks.tracking.fingerprints import digest_of, revisions
from tasks.tracking.orphans import close_orphans, noted
from tasks.tracking.spool import (
    SPOOL,
    Journal,
    Place,
    Refused,
    Write,
    remember,
    remembered,
    send_left,
    set_aside,
    spool_of,
    tell_refused,
    waiting,
)
from tasks.tracking.traces import send_traces

FLUSH_SECONDS, RETRY_SECONDS, WAIT_SECONDS = 5.0, 15.0, 300.0
"""Points are written so often; a server that is down is asked again so often; a stage that needs it waits so long."""
RARELY = 20.0
"""A try that took a second is repeated after so many at the earliest: the work does not wait for the server."""
BATCH = 900


@dataclass
class Run:
    """An open run of one stage. ``log`` is harr's ``Log``: points are buffered and written in batches.

    What a server does not take is kept in the journal and follows when it answers again: with a
    later flush, at the stage's end, or with the next stage.
    """

    client: Any
    stage: str
    journal: Journal
    place: Place = field(default_factory=dict)
    _points: list[Any] = field(default_factory=list)
    _flushed: float = field(default_factory=time.monotonic)
    refused: int = 0
    """Writes that the server did not take and never will; see ``tasks.tracking.spool.set_aside``."""
    _tried: float = 0.0
    _took: float = 0.0
    """When a server that does not answer was last asked, and how long that took."""

    @property
    def run_id(self) -> str:
        """MLflow's name of the run; only where the run is made on the server."""
        return self.place["run"]

    def write(self, **write: Any) -> None:
        """Do one write (see ``perform``), or keep it where the server does not answer; the order is kept."""
        if self.caught_up():
            began = time.monotonic()
            try:
                self.place = replay(self.client, self.place, write)
                return
            except Refused as error:
                self.refused += 1
                set_aside(self.journal.path.parent, write, error, tell=self.refused == 1)
                return
            except ServiceUnavailable as error:
                self.missed(began)
                print(f"warning: {error}; what stage {self.stage} reports is kept in {SPOOL}", file=sys.stderr)
        if write["do"] == "artifact":
            write["path"] = str(self.journal.keep(Path(write["path"])))
        self.journal.add(self.place, write)

    def caught_up(self, *, now: bool = False) -> bool:
        """Whether nothing of this run waits; tries to send what does, earlier stages first.

        It tries every RETRY_SECONDS, less often where a try takes long, or ``now``.
        """
        if not self.journal:
            return True
        began = time.monotonic()
        if not now and began - self._tried < max(RETRY_SECONDS, RARELY * self._took):
            return False
        kept = len(self.journal)
        try:
            send_left(self.journal.path.parent, partial(replay, self.client))
            self.place = self.journal.send(partial(replay, self.client))
        except ServiceUnavailable:
            self.missed(began)
            return False
        print(f"MLflow answers again: {kept} writes of stage {self.stage} were sent", file=sys.stderr)
        return True

    def missed(self, began: float) -> None:
        """Note that the server was asked from ``began`` until now, and did not answer."""
        self._tried = time.monotonic()
        self._took = self._tried - began

    def wait(self) -> None:
        """Wait until the server has everything, at most WAIT_SECONDS.

        Raises:
            ServiceUnavailable: it does not answer; what was reported stays kept.
        """
        self.flush()
        deadline = time.monotonic() + WAIT_SECONDS
        while not self.caught_up(now=True):
            if time.monotonic() > deadline:
                raise ServiceUnavailable(
                    f"the MLflow server did not answer for {WAIT_SECONDS:.0f} s and stage {self.stage} cannot go on "
                    "without it; start it and run the same command again"
                )
            time.sleep(1)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Keep one point per value; they reach the store every few seconds."""
        now = int(time.time() * 1000)
        self._points += [(name, float(value), now, step) for name, value in values.items()]
        if time.monotonic() - self._flushed > FLUSH_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Write the buffered points, or keep them where the server does not answer."""
        self._flushed = time.monotonic()
        while self._points:
            self.write(do="points", points=self._points[:BATCH])
            del self._points[:BATCH]

    def record(self, stage: str, figures: Mapping[str, float]) -> None:
        """The stage's own figures: metrics/<stage>.json for DVC, and the run's metrics."""
        write_json(Path("metrics") / f"{stage}.json", {name: round(float(v), 6) for name, v in figures.items()})
        self.log(0, {f"{stage}.{name}": value for name, value in figures.items()})

    def dataset(self, name: str, path: Path, context: str) -> None:
        """Note an input by name, place and hash."""
        self.write(do="dataset", name=name, digest=digest_of(path)[:32], path=str(path), context=context)

    def artifact(self, path: Path, folder: str = "") -> None:
        """Keep a file or folder with the run."""
        self.write(do="artifact", path=str(path), folder=folder)

    def tag(self, **tags: str) -> None:
        """Set tags of this run."""
        self.write(do="tags", tags=tags)

    def traces(self, trajectories: list[dict[str, Any]]) -> None:
        """Keep trajectories of tasks/tracking/traces.py as traces, a span a hop."""
        if trajectories:
            self.write(do="traces", traces=trajectories)

    def end(self, status: str) -> None:
        """Close the run; what the server has not taken by then follows with the next stage."""
        self.flush()
        self.write(do="end", status=status, time=int(time.time() * 1000))
        tell_refused(self.journal.path.parent, self.stage, self.refused)
        if not self.caught_up(now=True):
            print(
                f"warning: the MLflow server does not answer; {len(self.journal)} writes of stage {self.stage} are "
                f"kept in {SPOOL} and follow with the next stage",
                file=sys.stderr,
            )
        self.journal.close()


@contextmanager
def tracked_run(stage: str, params: Params) -> Iterator[Run]:
    """A child run for one stage, under the parent run of this pipeline execution.

    It ends FINISHED, FAILED on an exception, or KILLED on a signal; so does the parent. What earlier
    stages could not send goes first, and runs that a kill left open are closed. A server that has answered
    here before may be down: the stage runs, and its reports are kept.

    Raises:
        ServiceUnavailable: the server does not answer and never has.
    """
    with service():
        client = open_client(params)
    address = client.tracking_uri
    run = Run(client, stage, Journal(spool_of(address), f"{time.time_ns()}-{stage}"))
    execution = execution_id()
    opening = {
        "do": "open",
        "stage": stage,
        "experiment": params.tracking.experiment,
        "execution": execution,
        "started": int(time.time() * 1000),
        "name": run.journal.path.stem,
        "tags": revisions(),
        "params": [[key, bare(str(value))[:500]] for key, value in flatten(params.model_dump(mode="json"))],
    }
    with noted(spool_of(address), run.journal.path.stem, params.tracking.experiment, execution):
        _begin(run, address, opening)
        status = "KILLED"
        try:
            with service():
                yield run
            status = "FINISHED"
        except Exception:
            status = "FAILED"
            raise
        finally:
            run.end(status)


def _begin(run: Run, address: str, opening: Write) -> None:
    """Send what earlier stages kept, close the runs of killed ones, and open this one; or keep its opening."""
    began, client = time.monotonic(), run.client
    try:
        if sent := send_left(spool_of(address), partial(replay, client)):
            print(f"sent to MLflow what {sent} earlier stages had kept", file=sys.stderr)
        with service():
            for line in close_orphans(spool_of(address), client):
                print(line, file=sys.stderr)
            run.place = perform(client, {}, opening)
        if address.startswith("http"):
            remember(address)
    except ServiceUnavailable:
        if not remembered(address):
            raise
        run.journal.add({}, opening)
        run.missed(began)
        print(f"warning: the MLflow server is down; what stage {run.stage} reports is kept in {SPOOL}", file=sys.stderr)


def perform(client: Any, place: Place, write: Write) -> Place:
    """Do one write of a run; a repeated one changes nothing. Returns the place of the run.

    Args:
        client: of MLflow.
        place: ids of the run, its parent and its experiment.
        write: ``do`` and what it needs: ``open``, ``points``, ``tags``, ``dataset``, ``artifact``, ``traces``, ``end``.
    """
    from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, RunTag

    run = place.get("run", "")
    match write["do"]:
        case "open":
            return _open(client, write)
        case "points":
            client.log_batch(run, metrics=[Metric(*point) for point in write["points"]])
        case "tags":
            client.log_batch(run, tags=[RunTag(name, value) for name, value in write["tags"].items()])
        case "dataset":
            source = json.dumps({"uri": write["path"]})
            data = Dataset(name=write["name"], digest=write["digest"], source_type="local", source=source)
            client.log_inputs(run, [DatasetInput(data, [InputTag("mlflow.data.context", write["context"])])])
        case "artifact":
            keep = client.log_artifacts if Path(write["path"]).is_dir() else client.log_artifact
            with uploading(write["path"]):
                keep(run, write["path"], write["folder"] or None)
        case "traces":
            send_traces(client, place["experiment"], run, write["traces"])
        case "end":
            for each in (run, place["parent"]):
                client.set_terminated(each, write["status"], write["time"])
    return place


def replay(client: Any, place: Place, write: Write) -> Place:
    """A write that may have been done before: what the server refuses is ``Refused``, and a run is not made twice."""
    from mlflow.exceptions import MlflowException

    try:
        with service():
            return _open(client, write, again=True) if write["do"] == "open" else perform(client, place, write)
    except MlflowException as error:
        raise Refused(error.message.splitlines()[0]) from None


def _open(client: Any, write: Write, *, again: bool = False) -> Place:
    """Make the run of a stage, or find it if it may have been made before; returns its place."""
    from mlflow.entities import Param

    experiment = _experiment(client, write["experiment"])
    made = f"tags.`harr.spool` = '{write['name']}'"
    runs = client.search_runs([experiment], made, max_results=1) if again else []
    place = (
        {"run": runs[0].info.run_id, "parent": runs[0].data.tags["mlflow.parentRunId"]}
        if runs
        else _make(client, experiment, write)
    )
    flat = [Param(key, value) for key, value in write["params"]]
    for start in range(0, len(flat), 100):
        client.log_batch(place["run"], params=flat[start : start + 100])
    return {**place, "experiment": experiment}


def _make(client: Any, experiment: str, write: Write) -> Place:
    """A new run under the parent of its execution."""
    parent = _parent(client, experiment, write)
    tags = {
        "mlflow.parentRunId": parent,
        "mlflow.runName": write["stage"],
        "harr.stage": write["stage"],
        "harr.spool": write["name"],
        **write["tags"],
    }
    return {"run": client.create_run(experiment, start_time=write["started"], tags=tags).info.run_id, "parent": parent}


def send_kept() -> list[str]:
    """Send what stages have kept for servers that were away; a line for each server.

    Raises:
        ServiceUnavailable: a server does not answer; what it has not taken stays kept.
    """
    told = []
    for path in sorted(SPOOL.glob("*/address")):
        address, count = path.read_text(encoding="utf-8").strip(), len(waiting(path.parent))
        if count:
            known = address_of(Params.load())  # this may carry a name and password
            client = client_of(known if bare(known) == address else address)
            sent = send_left(path.parent, partial(replay, client))
            with service():
                told += close_orphans(path.parent, client)
            left = f"; {count - sent} are still written to by a stage" if sent < count else ""
            told.append(f"sent to MLflow at {bare(address)} what {sent} stages had kept{left}")
    return told


def open_client(params: Params) -> Any:
    """A client of the tracking server, or of sqlite:///mlflow.db."""
    return client_of(address_of(params))


def address_of(params: Params) -> str:
    """Where the runs go: tracking.uri, MLFLOW_TRACKING_URI, or the database in this folder."""
    return params.tracking.uri or os.environ.get("MLFLOW_TRACKING_URI", "sqlite:///mlflow.db")


def client_of(address: str) -> Any:
    """A client of the store at this address."""
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")  # the spool waits, not the stage
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException

    for noisy in ("alembic", "mlflow.store.db.utils", "mlflow.tracking", "mlflow.store.model_registry"):
        logging.getLogger(noisy).setLevel(logging.ERROR)
    try:
        return MlflowClient(address)
    except MlflowException:  # of the scheme; its text may hold a password
        remedy = "set tracking.uri or MLFLOW_TRACKING_URI to http://... or sqlite:///..."
        raise ParamsError(f"{bare(address)} is no address of an MLflow store; {remedy}") from None


def _experiment(client: Any, name: str) -> str:
    from mlflow.exceptions import MlflowException

    found = client.get_experiment_by_name(name)
    if found:
        return str(found.experiment_id)
    try:
        return str(client.create_experiment(name))
    except MlflowException:  # another process made it in between
        return str(client.get_experiment_by_name(name).experiment_id)


def _parent(client: Any, experiment: str, write: Write) -> str:
    """The parent run of this execution: found by its tag, else made."""
    found = client.search_runs([experiment], f"tags.`harr.execution` = '{write['execution']}'", max_results=1)
    if found:
        client.update_run(found[0].info.run_id, status="RUNNING")
        return str(found[0].info.run_id)
    name = time.strftime("pipeline %Y-%m-%d %H:%M:%S", time.localtime(write["started"] / 1000))
    tags = {"harr.execution": write["execution"], "mlflow.runName": name, **write["tags"]}
    return str(client.create_run(experiment, start_time=write["started"], tags=tags).info.run_id)


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
