"""A stage's run: what it reports to MLflow. One parent run per pipeline execution, a child per stage."""

import os
import platform
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harr.errors import ServiceUnavailable, bare
from harr.io.files import digest_of, write_json
from harr.params import Params
from tasks.paths import METRICS, NOTES
from tasks.sentences import description
from tasks.tracking.client import open_client
from tasks.tracking.errors import Refused, service
from tasks.tracking.execution import execution_id, identity, recipe_here
from tasks.tracking.fingerprints import revisions
from tasks.tracking.inputs import check_noted, check_unchanged, described, stamps
from tasks.tracking.report import NOTE, Report, has_answered, open_run, remember, send, send_left

FLUSH_SECONDS, RETRY_SECONDS, WAIT_SECONDS = 5.0, 15.0, 300.0
"""How often points are sent; how often a server that is away is asked; how long a stage that needs it waits."""
RARELY = 20.0
"""A try that took a second is repeated after so many at the earliest: the work does not wait for the server."""


@dataclass
class Run:
    """An open run of one stage. ``log`` is harr's ``Log``.

    All that a stage says gathers in its report, which is sent every few seconds while it logs, and at its end. What a
    server that is away has not taken by then stays on disk, and follows with the next stage.
    """

    client: Any
    report: Report
    _made: Any = None
    _flushed: float = field(default_factory=time.monotonic)
    _away: bool = False
    _next_try: float = 0.0
    """When a server that is away is asked again."""

    @property
    def run_id(self) -> str:
        """Return MLflow's name of the run; there is one once the server has answered."""
        return str(self._made.info.run_id)

    def send(self) -> None:
        """Send what has gathered; at first, and after an outage, what earlier stages left, too.

        Raises:
            ServiceUnavailable: the server does not answer.
        """
        if self._made is None or self._away:
            say(*send_left(lambda address: self.client if address == self.report.address else None))
        if self._made is None:
            with service():
                self._made = open_run(self.client, self.report)
        say(*send(self.client, self._made, self.report))

    def flush(self, *, now: bool = False) -> bool:
        """Send what has gathered; returns False where the server is away.

        It is asked every RETRY_SECONDS then, less often where a try takes long; or ``now``.
        """
        self._flushed = began = time.monotonic()
        if not now and began < self._next_try:
            return False
        try:
            self.send()
        except (ServiceUnavailable, Refused) as error:
            ended = time.monotonic()
            self._next_try = ended + max(RETRY_SECONDS, RARELY * (ended - began))
            if not self._away:
                say(f"warning: {error}; stage {self.report.stage} goes on, and is reported later")
            self._away = True
            return False
        if self._away:
            say(f"MLflow answers again: what stage {self.report.stage} had to report was sent")
        self._away = False
        return True

    def wait(self) -> None:
        """Wait until the server has everything, at most WAIT_SECONDS.

        Raises:
            ServiceUnavailable: it does not answer; what was reported stays.
        """
        deadline = time.monotonic() + WAIT_SECONDS
        while not self.flush(now=True):
            if time.monotonic() > deadline:
                raise ServiceUnavailable(
                    f"the MLflow server did not answer for {WAIT_SECONDS:.0f} s and stage {self.report.stage} cannot "
                    "go on without it; start it and run the same command again"
                )
            time.sleep(1)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Report one point per value; they reach the server every few seconds."""
        now = int(time.time() * 1000)
        self.report.points += [[name, float(value), now, step] for name, value in values.items()]
        if time.monotonic() - self._flushed > FLUSH_SECONDS:
            self.flush()

    def record(self, stage: str, figures: Mapping[str, float]) -> None:
        """Write the stage's own figures to metrics/<stage>.json for DVC, and report them."""
        write_json(METRICS / f"{stage}.json", {name: round(float(v), 6) for name, v in figures.items()})
        self.log(0, {f"{stage}.{name}": value for name, value in figures.items()})

    def dataset(self, name: str, path: Path, context: str) -> None:
        """Report an input by name, place and hash."""
        self.report.datasets.append([name, digest_of(path)[:32], str(path), context])

    def artifact(self, path: Path, folder: str = "") -> None:
        """Report a file or folder, which is to stay as it is until the stage's end."""
        self.report.artifacts.append([str(path), folder, ""])

    def headline(self, figures: Mapping[str, float], note: str) -> None:
        """Report what stands on the run of the whole execution: a few figures, and a description in Markdown."""
        self.report.headline, self.report.note = dict(figures), note

    def tag(self, **tags: str) -> None:
        """Set tags of this run."""
        self.report.tags |= tags

    def traces(self, trajectories: list[dict[str, Any]]) -> None:
        """Report trajectories of tasks/tracking/traces.py as traces, a span a hop."""
        self.report.traces += trajectories

    def end(self, status: str) -> None:
        """Close the run; where the server is away, leave the report on disk."""
        self.report.status, self.report.ended = status, int(time.time() * 1000)
        if self.flush(now=True):
            self.report.path.unlink(missing_ok=True)
        else:
            self.report.write()
            say(f"warning: the report of stage {self.report.stage} waits in {NOTES} until MLflow takes it")


@contextmanager
def tracked_run(stage: str, params: Params) -> Iterator[Run]:
    """Open a child run for one stage, under the parent run of this pipeline execution.

    It ends FINISHED, FAILED on an exception, or KILLED on a signal; so does the parent. What earlier stages could not
    report goes first, and runs that a kill left open are closed. A server that has answered here before may be away:
    the stage runs, and is reported later.

    Raises:
        ServiceUnavailable: the server does not answer and never has.
        ParamsError, StaleState: parameters or dependencies changed while it ran, or dvc.lock has other parameters of a
            stage before than that ran with (tasks/tracking/inputs.py).
    """
    check_noted(stage)
    before = stamps(stage)
    with service():
        client = open_client(params)
    run = Run(client, _begin(stage, params, client.tracking_uri))
    try:
        run.flush(now=True) if has_answered(client.tracking_uri) else run.send()
    except Exception:
        run.report.path.unlink()
        raise
    remember(client.tracking_uri)
    status = "KILLED"
    try:
        with service():
            yield run
        check_unchanged(stage, params, before)
        status = "FINISHED"
    except Exception:
        status = "FAILED"
        raise
    finally:
        run.end(status)


def _begin(stage: str, params: Params, address: str) -> Report:
    """Note on disk that this process begins a stage: a kill leaves the note, and whoever comes next closes the run."""
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
        **identity(),
        revisions=revisions(),
        sections=sections_of(stage),
        params=told_params(params),
        tags={NOTE: said} if (said := description(stage, params)) else {},
    )
    report.write()
    return report


def sections_of(stage: str) -> list[str]:
    """Return which parameters a stage reads, by dvc.yaml; none where it is no stage of it."""
    return list(described(stage).get("params", []))


def told_params(params: Params) -> dict[str, str]:
    """Return all parameters as MLflow is told them: dotted names, short texts, no passwords."""
    return {key: bare(str(value))[:500] for key, value in flatten(params.model_dump(mode="json"))}


def flatten(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted names and values of all leaves.

    >>> list(flatten({"train": {"steps": 3}, "seed": 0}))
    [('train.steps', 3), ('seed', 0)]
    """
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def say(*lines: str) -> None:
    """Print lines on stderr."""
    for line in lines:
        print(line, file=sys.stderr)
