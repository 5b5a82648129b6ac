"""A stage's run: what it reports to MLflow. One parent run per pipeline execution, a child per stage.

A stage computes without MLflow. Its reports gather in a note on disk (tasks/tracking/report.py), which is sent when the
stage has ended; an absent server only delays this. While a long stage computes, a thread sends its points if a server
answers.
"""

import contextlib
import importlib
import os
import platform
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from harr.errors import HarrError, bare
from harr.io.files import digest_of, write_json
from harr.params import Params
from harr.services.mlflow_store import client_of
from tasks.headline import plain_name
from tasks.inputs.stages import READS, flatten
from tasks.paths import METRICS
from tasks.sentences import description
from tasks.tracking.client import address_of
from tasks.tracking.errors import service
from tasks.tracking.execution import execution_id, process_name, recipe_here
from tasks.tracking.fingerprints import revisions
from tasks.tracking.inputs import check_begun, check_unchanged, stamps
from tasks.tracking.report import NOTE, Report, open_run, send, send_left, send_points

LIVE_SECONDS = 15.0
"""How often a long stage sends its points while it computes."""


@dataclass
class Run:
    """An open run of one stage. ``log`` is harr's ``Log``."""

    report: Report
    address: str
    """The address of MLflow's store, with name and password."""
    _ended: threading.Event = field(default_factory=threading.Event)
    _live: threading.Thread | None = None
    _run: Any = None

    @cached_property
    def client(self) -> Any:
        """Return a client of the store."""
        return client_of(self.address)

    @property
    def _mlflow_run(self) -> Any:
        with service():
            self._run = self._run or open_run(self.client, self.report)
            return self._run

    @property
    def run_id(self) -> str:
        """Return MLflow's id of the run, which exists once the server has answered."""
        return str(self._mlflow_run.info.run_id)

    def send(self) -> None:
        """Send what has gathered, since a version can only be registered from a run that MLflow has.

        Raises:
            ServiceUnavailable: the server does not answer; what was reported stays.
        """
        say(*send(self.client, self._mlflow_run, self.report))

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Report one point per value."""
        now = int(time.time() * 1000)
        self.report.points += [[name, float(value), now, step] for name, value in values.items()]
        if self._live is None and now - self.report.begun > 1000 * LIVE_SECONDS:
            importlib.import_module("mlflow")  # of two threads importing it at once, one may get half
            self._live = threading.Thread(target=self._show, name="live", daemon=True)
            self._live.start()

    def _show(self) -> None:
        """Send points while the stage computes; failures are sent at the end. No step ever waits for this."""
        count = 0
        while not self._ended.is_set():
            with contextlib.suppress(Exception), service():
                if not self._ended.is_set():  # else the stage ended while this waited
                    points = self.report.points[count:]
                    send_points(self.client, self.run_id, points)
                    count += len(points)
            self._ended.wait(LIVE_SECONDS)

    def record(self, stage: str, figures: Mapping[str, float]) -> None:
        """Write the stage's own figures to metrics/<stage>.json for DVC, and report them."""
        write_json(METRICS / f"{stage}.json", {name: round(float(v), 6) for name, v in figures.items()})
        self.log(0, {f"{stage}/{name}": value for name, value in figures.items()})

    def dataset(self, name: str, path: Path, context: str) -> None:
        """Report an input by name, path and hash."""
        self.report.datasets.append([name, digest_of(path)[:32], str(path), context])

    def artifact(self, path: Path, folder: str = "") -> None:
        """Report a file or folder, which must not change until the stage's end."""
        self.report.artifacts.append([str(path), folder, ""])

    def headline(self, figures: Mapping[str, float], note: str) -> None:
        """Report what the whole execution's run shows: a few figures, and a description in Markdown."""
        self.report.headline, self.report.note = dict(figures), note

    def tag(self, **tags: str) -> None:
        """Set tags of this run."""
        self.report.tags |= tags

    def end(self, status: str) -> None:
        """Close the run: write its note, and send it with what earlier stages left, if the server takes it."""
        self._ended.set()
        self.report.status, self.report.ended = status, int(time.time() * 1000)
        self.report.write()
        try:
            with service():
                lines = send_left(lambda address: self.client if address == self.report.address else None)
        except HarrError as error:
            lines = [f"warning: {error}; stage {self.report.stage} is reported later: `harr record`"]
        say(*(line for line in lines if line != f"reported to MLflow: stage {self.report.stage}, {status}"))


@contextmanager
def tracked_run(stage: str, params: Params) -> Iterator[Run]:
    """Open a child run for one stage, under the parent run of this pipeline execution.

    It ends FINISHED, FAILED on an exception, or KILLED on a signal; so does the parent. What earlier stages could not
    report is sent with it, and runs that a kill left open are closed.

    Raises:
        StaleState: parameters changed before it began, or dependencies while it ran (tasks/tracking/inputs.py).
    """
    before = stamps(stage)
    check_begun(stage, params, before)
    address = address_of(params)
    run = Run(_begin(stage, params, address), address)
    status = "KILLED"
    try:
        yield run
        check_unchanged(stage, before)
        status = "FINISHED"
    except Exception:
        status = "FAILED"
        raise
    finally:
        run.end(status)


def _begin(stage: str, params: Params, address: str) -> Report:
    """Note on disk that this process begins a stage: after a kill, the next process finds it and closes the run."""
    now = time.time_ns()
    report = Report(
        name=f"{now}-{stage}-{os.getpid()}",
        address=bare(address),
        experiment=params.tracking.experiment,
        execution=execution_id(),
        stage=stage,
        recipe=recipe_here(),
        begun=now // 1_000_000,
        host=platform.node(),
        process=process_name(),
        revisions=revisions(),
        sections=list(READS.get(stage, ())),
        params=flat_params(params),
        tags={NOTE: note} if (note := description(stage, params)) else {},
    )
    report.write()
    return report


def flat_params(params: Params) -> dict[str, str]:
    """Return all parameters for MLflow: dotted names, short values, no passwords."""
    return {plain_name(key): bare(str(value))[:500] for key, value in flatten(params.model_dump(mode="json"))}


def say(*lines: str) -> None:
    """Print lines on stderr."""
    for line in lines:
        print(line, file=sys.stderr)
