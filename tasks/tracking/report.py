"""A stage's report to MLflow: a note of what its run is to contain, and how it is sent.

The note is on disk while the stage runs, and stays there until the server has taken all of it. Sending a report again
changes nothing: its run is found by the tag ``harr.report``, and points carry their times. The note contains figures,
but only paths and hashes of files, since the stage's outputs are on disk anyway.
"""

import contextlib
import json
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any, get_origin

from harr.errors import DamagedFile, HarrError, ParamsError, bare, one_line
from harr.io.files import digest_of, read_state, write_json
from harr.params import Params
from harr.services.mlflow_store import client_of, lock_folder
from tasks.paths import NOTES, RUNS
from tasks.tracking.client import address_of
from tasks.tracking.errors import Refused, done_once, service, uploading
from tasks.tracking.execution import is_alive, this_process

NOTE = "mlflow.note.content"
"""Tag that MLflow shows as a run's description, in Markdown."""
BATCH = 900
RUNNING = "attributes.status = 'RUNNING'"


@dataclass
class Report:
    """A stage's run, and what MLflow has not received of it yet. All values are JSON."""

    name: str
    address: str
    experiment: str
    execution: str
    stage: str
    begun: int
    """When the stage began, in milliseconds since 1970, like ``ended``."""
    host: str
    process: str
    """The process that runs the stage: see ``tasks.tracking.execution.process_name``."""
    revisions: dict[str, str]
    params: dict[str, str]
    sections: list[str] = field(default_factory=list)
    """The parameters that the stage reads, or sections of them; none: all. The run of the execution has all."""
    recipe: str = "params.yaml"
    status: str = "RUNNING"
    ended: int = 0
    points: list[list[Any]] = field(default_factory=list)
    """Each has a name, a value, a time in milliseconds and a step."""
    datasets: list[list[str]] = field(default_factory=list)
    """Each has a name, a digest, a path and a context."""
    artifacts: list[list[str]] = field(default_factory=list)
    """Each has a path, a folder of the run and, once the stage has ended, the digest."""
    tags: dict[str, str] = field(default_factory=dict)
    headline: dict[str, float] = field(default_factory=dict)
    note: str = ""
    """Figures and description of the run of the whole execution."""

    @property
    def path(self) -> Path:
        """Return the path of the note."""
        return NOTES / f"{self.name}.json"

    def write(self) -> None:
        """Write the note; once the stage has ended, with the digests of its files, which may change later."""
        if self.status != "RUNNING":
            self.artifacts = [[path, folder, digest_of(Path(path))] for path, folder, _ in self.artifacts]
        write_json(self.path, asdict(self))

    def is_at_work(self) -> bool:
        """Return whether the stage still runs; on another machine this is assumed."""
        return self.status == "RUNNING" and (self.host != platform.node() or is_alive(self.process))


def read_report(path: Path) -> Report:
    """Read a note.

    Raises:
        DamagedFile: it is damaged.
    """
    kinds: dict[str, Any] = {field.name: get_origin(field.type) or field.type for field in fields(Report)}
    values = read_state(path, "what it holds for MLflow is not reported", **kinds)
    return Report(**{name: values[name] for name in kinds})


KIND = {"mlflow.experimentKind": "custom_model_development"}
"""Tag that makes MLflow's page of an experiment open at its runs, not at traces."""


def open_run(client: Any, report: Report) -> Any:
    """Return a report's MLflow run: found by its tag, else made under the parent of its execution."""
    if client.get_experiment_by_name(report.experiment) is None:
        done_once(client.create_experiment, report.experiment, tags=KIND)
    entry = client.get_experiment_by_name(report.experiment)
    experiment = entry.experiment_id
    if entry.lifecycle_stage == "deleted":
        raise HarrError(
            f"experiment {report.experiment!r} was deleted in MLflow; `mlflow experiments restore -x {experiment}` brings "
            "it back, or name another in tracking.experiment"
        )
    runs = client.search_runs([experiment], f"tags.`harr.report` = '{report.name}'", max_results=1)
    run = runs[0] if runs else _make(client, experiment, report)
    prefixes = tuple(f"{section}." for section in report.sections) or ("",)
    _log_params(client, run, {key: value for key, value in report.params.items() if f"{key}.".startswith(prefixes)})
    return run


def _log_params(client: Any, run: Any, params: Mapping[str, str]) -> None:
    from mlflow.entities import Param

    flat = [Param(key, value) for key, value in params.items()]
    for start in range(0, len(flat), 100):
        client.log_batch(run.info.run_id, params=flat[start : start + 100])


def _make(client: Any, experiment: str, report: Report) -> Any:
    """Make a run, and its parent unless one is found by its tag."""
    parents = client.search_runs([experiment], f"tags.`harr.execution` = '{report.execution}'", max_results=1)
    if parents and report.status == "RUNNING":
        client.update_run(parents[0].info.run_id, status="RUNNING")
    if not parents:
        when = time.strftime("%m-%d %H:%M", time.localtime(report.begun / 1000))
        name = f"{when} {report.recipe}"  # MLflow truncates names after some 20 characters
        tags = {"harr.execution": report.execution, "mlflow.runName": name, **report.revisions}
        parents = [client.create_run(experiment, start_time=report.begun, tags=tags)]
        _log_params(client, parents[0], report.params)
    name = f"{report.stage} ({report.recipe})"
    tags = {"mlflow.parentRunId": parents[0].info.run_id, "mlflow.runName": name, "harr.stage": report.stage}
    return client.create_run(
        experiment, start_time=report.begun, tags={**tags, "harr.report": report.name, **report.revisions}
    )


def send(client: Any, run: Any, report: Report) -> list[str]:
    """Send a report's content and empty it; if its stage has ended, close the run.

    Returns:
        At most one line, on what was refused: a run that lacks a figure or a file is still a run.

    Raises:
        ServiceUnavailable: the server does not answer; the report is unchanged.
    """
    refused = []
    for what, write in _writes(client, run, report):
        try:
            with service():
                write()
        except Refused as error:
            refused.append(f"{what}: {error}")
    if report.status != "RUNNING":
        with service():
            _close(client, run, report)
    report.points, report.datasets, report.artifacts = [], [], []
    report.tags, report.headline, report.note = {}, {}, ""
    more = f" and {len(refused) - 1} more" if len(refused) > 1 else ""
    return [f"warning: MLflow refused of stage {report.stage}: {refused[0]}{more}"] if refused else []


def _writes(client: Any, run: Any, report: Report) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield what to send, with a name for each."""
    from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, RunTag

    key, parent = run.info.run_id, run.data.tags["mlflow.parentRunId"]
    yield "figures", partial(send_points, client, key, report.points)
    if report.headline:
        points = [Metric(name, value, report.begun, 0) for name, value in report.headline.items()]
        tags = [RunTag(NOTE, report.note)]
        yield "headline", partial(client.log_batch, parent, metrics=points, tags=tags)
    if report.tags:
        yield "tags", partial(client.log_batch, key, tags=[RunTag(*tag) for tag in report.tags.items()])
    if version := report.tags.get("version"):  # MLflow lists a registered model only at the run that has its files
        yield "version", partial(client.set_tag, parent, "version", version)
    for name, digest, path, context in report.datasets:
        data = Dataset(name=name, digest=digest, source_type="local", source=json.dumps({"uri": path}))
        source = DatasetInput(data, [InputTag("mlflow.data.context", context)])
        for reader in (key, parent):
            yield f"data set {name}", partial(client.log_inputs, reader, [source])
    for path, folder, digest in report.artifacts:
        yield "artifact", partial(_upload, client, key, Path(path), folder, digest)


def send_points(client: Any, key: str, points: Sequence[Sequence[Any]]) -> None:
    """Send points of a run; sending them again changes nothing."""
    from mlflow.entities import Metric

    for start in range(0, len(points), BATCH):
        client.log_batch(key, metrics=[Metric(*point) for point in points[start : start + BATCH]])


def _upload(client: Any, key: str, path: Path, folder: str, digest: str) -> None:
    """Upload a file or folder to a run.

    Raises:
        Refused: it is gone, or a later run of the stage rewrote it with another ``digest``.
    """
    with uploading(str(path)):
        if digest and path.exists() and digest_of(path) != digest:
            raise Refused(f"{path} was changed since")
        (client.log_artifacts if path.is_dir() else client.log_artifact)(key, str(path), folder or None)


def _close(client: Any, run: Any, report: Report) -> None:
    """End an open run, and its parent if none of its stages still runs."""
    if run.info.status == "RUNNING":
        client.set_terminated(run.info.run_id, report.status, report.ended)
    parent = client.get_run(run.data.tags["mlflow.parentRunId"]).info
    others = f"tags.`mlflow.parentRunId` = '{parent.run_id}' and {RUNNING}"
    if not client.search_runs([run.info.experiment_id], others, max_results=1) and (
        parent.status == "RUNNING" or (parent.end_time or 0) < report.ended
    ):
        client.set_terminated(parent.run_id, report.status, report.ended)


def send_reports() -> list[str]:
    """Send what servers did not take, here and in recipes' folders, and return a line for each report.

    A recipe's folder whose parameters cannot be read, since an older version wrote them, keeps its reports.

    Raises:
        ServiceUnavailable: a server does not answer; what it has not taken stays.
    """
    lines = []
    for place in [Path(), *sorted(path.parents[1] for path in RUNS.glob(f"*/{NOTES}"))]:
        with contextlib.chdir(place):  # paths in a report are relative to it
            try:
                sent = send_left(partial(_client_here, address_of(Params.load())))
            except ParamsError as error:
                if place == Path():
                    raise
                waits = f"warning: its reports are not sent: {one_line(error)}; run the recipe again"
                sent = [waits] if any(NOTES.glob("*.json")) else []
        lines += [line if place == Path() else f"{place}: {line}" for line in sent]
    return lines


def _client_here(local: str, address: str) -> Any:
    """Return the client of an address; ``local`` may carry a name and password."""
    return client_of(local if bare(local) == address else address)


def send_left(client_for: Callable[[str], Any]) -> list[str]:
    """Send what stages left here, oldest first; a run that a kill left open ends KILLED. Returns lines that say so.

    Args:
        client_for: returns the client of a server, or None to skip it.

    Raises:
        ServiceUnavailable: a server does not answer; what it has not taken stays.
    """
    lines = []
    NOTES.mkdir(parents=True, exist_ok=True)
    with lock_folder(NOTES):  # other processes must not send the same notes
        for path in sorted(NOTES.glob("*.json")):
            try:
                report = read_report(path)
            except DamagedFile as error:
                lines += _put_aside(path, error)
                continue
            if not report.is_at_work() and (client := client_for(report.address)):
                try:
                    lines += _send_late(client, report)
                    path.unlink()
                except Refused as error:
                    lines += _put_aside(path, error)
    return lines


def _send_late(client: Any, report: Report) -> list[str]:
    """Send the report of a stage that has ended, and return lines to print."""
    with service():
        run = open_run(client, report)
    lines = [f"reported to MLflow: stage {report.stage}, {report.status}"]
    if report.status == "RUNNING":  # its process is gone
        if run.info.status == "RUNNING":
            report.status, report.ended = "KILLED", int(time.time() * 1000)
            report.tags["harr.killed"] = f"its process was gone; closed by {this_process()}"
            page = f"; {report.address.rstrip('/')}/#/experiments/{run.info.experiment_id}/runs/{run.info.run_id}"
            lines = [
                f"MLflow run {run.info.run_id} of stage {report.stage} was cut off by a kill and is "
                f"closed as KILLED{page if report.address.startswith('http') else ''}"
            ]
        else:  # killed after everything was reported
            report.status, report.ended, lines = run.info.status, run.info.end_time, []
    return lines + send(client, run, report)


def _put_aside(path: Path, error: Exception) -> list[str]:
    """Rename a note that cannot be sent, so that nobody looks for it, and return a line that says so."""
    if not path.exists():  # its stage has just ended
        return []
    path.replace(path.with_name(f"{path.name}.aside"))
    return [f"warning: {error}; the note is now {path}.aside, and the others go on"]
