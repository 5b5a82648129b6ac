"""Which process runs which flow run: a run whose process is gone is marked Crashed, and what it left is ended.

One file per flow run, beside the history it stands in. A process that ends in any way but a kill takes its file away.
"""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil

from harr.io.files import read_json, write_json
from tasks.tracking.execution import identity, is_alive, is_no_older

STOP_SECONDS = 20.0
"""Seconds that a stopped stage may take to leave its shard or step; then it is killed."""


def records() -> Path:
    """Return the folder of the files, in Prefect's home."""
    return Path(os.environ["PREFECT_HOME"]) / "processes"


@contextlib.contextmanager
def noted(flow_run: Any) -> Iterator[None]:
    """Note this process as the one of a flow run (None: there is no Prefect) for the length of the block."""
    path = records() / f"{flow_run}.json"
    if flow_run:
        write_json(path, {"flow_run": str(flow_run), **identity()})
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def note_group(flow_run: Any, leader: Mapping[str, Any], place: Path) -> None:
    """Note the process group that works for a noted flow run, by the ``identity`` of its leader and its folder."""
    if flow_run:
        group = {"group": leader["pid"], "group_started": leader["started"], "group_born": leader["born"]}
        note = {"flow_run": str(flow_run), **identity(), **group, "place": str(place.resolve())}
        write_json(records() / f"{flow_run}.json", note)


def working() -> list[dict[str, Any]]:
    """Return the noted flow runs whose process lives."""
    return [note for note in _noted() if is_alive(note)]


def sweep() -> list[str]:
    """End what dead runs left behind and mark them Crashed; returns their ids.

    Needs PREFECT_API_URL. Costs nothing where every noted process lives.
    """
    dead = [note for note in _noted() if not is_alive(note)]
    for note in dead:
        if "group" in note:
            born = note.get("group_born", "")
            end_group({"pid": note["group"], "started": note["group_started"], "born": born})
            mend_lock(Path(note["place"]))
    if dead:
        mark_crashed([note["flow_run"] for note in dead])
    for note in dead:
        (records() / f"{note['flow_run']}.json").unlink(missing_ok=True)
    return [note["flow_run"] for note in dead]


def _noted() -> list[dict[str, Any]]:
    found = []
    for path in sorted(records().glob("*.json")):
        with contextlib.suppress(OSError, ValueError):  # its process has just ended
            found.append(read_json(path))
    return found


def mark_crashed(flow_runs: list[str]) -> None:
    """Set the runs, and their tasks, that are not in a final state to Crashed."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId
    from prefect.states import Crashed

    state: Any = Crashed(message="The process of this run is gone (killed, or the machine went down).")
    with get_client(sync_client=True) as client:
        chosen = FlowRunFilter(id=FlowRunFilterId(any_=flow_runs))
        for task_run in all_pages(client.read_task_runs, flow_run_filter=chosen):
            if task_run.state and not task_run.state.is_final():
                client.set_task_run_state(task_run.id, state, force=True)
        for flow_run in all_pages(client.read_flow_runs, flow_run_filter=chosen):
            if flow_run.state and not flow_run.state.is_final():
                client.set_flow_run_state(flow_run.id, state, force=True)


def all_pages(read: Callable[..., list[Any]], **chosen: Any) -> list[Any]:
    """Return everything that a question to Prefect finds; one answer holds 200 at most.

    >>> all_pages(lambda offset: list(range(450))[offset : offset + 200]) == list(range(450))
    True
    """
    found: list[Any] = []
    while page := read(**chosen, offset=len(found)):
        found += page
    return found


def end_group(leader: Mapping[str, Any], seconds: float = STOP_SECONDS) -> None:
    """Stop a process group that DVC leads: SIGINT (DVC waits for its stage and gives its locks back), then KILL.

    ``leader`` is the ``identity`` of its leader: a later group of the same number is left alone.
    """
    group, members = leader["pid"], _members(leader)
    if not members:
        return
    _signal(group, signal.SIGINT)
    deadline = time.monotonic() + seconds
    while _members(leader) and time.monotonic() < deadline:
        time.sleep(0.2)
    if _members(leader):
        _signal(group, signal.SIGKILL)
        psutil.wait_procs(members, timeout=5)


def _signal(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):  # it has just ended by itself
        os.killpg(group, number)


def _members(leader: Mapping[str, Any]) -> list[psutil.Process]:
    """Return the processes of a group that still run; none of them can be older than its leader."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            ours = os.getpgid(process.pid) == leader["pid"] and is_no_older(process, leader)
            if ours and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def mend_lock(place: Path = Path()) -> None:
    """Mend DVC's lock file, which a kill can leave empty, so that every later command would fail on it."""
    lock = place / ".dvc/tmp/rwlock"
    if lock.exists() and not lock.read_text(encoding="utf-8").strip():
        lock.unlink()
