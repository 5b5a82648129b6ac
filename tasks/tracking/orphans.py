"""Runs of MLflow whose process was killed: noted while they run, and closed as KILLED by whoever starts next.

The note is a file in the server's spool, so it needs no server; a process that ends in any way but a kill takes its
file away. Only processes of this machine are judged.
"""

import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harr.errors import DamagedFile, bare
from harr.io.files import read_state, write_json
from tasks.tracking.execution import identity, is_alive, me, remove_partial_files


@contextmanager
def noted(spool: Path, name: str, experiment: str, execution: str) -> Iterator[None]:
    """Note this process as the one of the run ``name`` (its tag ``harr.spool``) for the length of the block."""
    told = {"name": name, "host": platform.node(), **identity()}
    path = spool / f"{told['pid']}.running"
    write_json(path, {**told, "experiment": experiment, "execution": execution})
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def close_orphans(spool: Path, client: Any) -> list[str]:
    """Close as KILLED the runs of processes that are gone, and their parent if none of its stages runs any more.

    What those processes had kept for the server must have been sent before. Returns a line for each run closed.
    """
    lines = []
    for path in sorted(spool.glob("*.running")):
        try:
            told = read_state(
                path, "it is removed", name=str, host=str, pid=int, started=float, experiment=str, execution=str
            )
        except DamagedFile as error:
            lines.append(f"{error}; a run of MLflow that it named may stay RUNNING")
            path.unlink(missing_ok=True)
            continue
        if told["host"] != platform.node() or is_alive(told):
            continue
        if (spool / f"{told['name']}.jsonl").exists():
            continue
        if experiment := client.get_experiment_by_name(told["experiment"]):
            where = experiment.experiment_id
            for run in _running(client, where, f"tags.`harr.spool` = '{told['name']}'"):
                _close(client, run, told["pid"])
                lines.append(_line(run, told["pid"], bare(client.tracking_uri)))
            for parent in _running(client, where, f"tags.`harr.execution` = '{told['execution']}'"):
                if not _running(client, where, f"tags.`mlflow.parentRunId` = '{parent.info.run_id}'"):
                    _close(client, parent, told["pid"])
        path.unlink(missing_ok=True)
    remove_partial_files(spool)  # cut off while it was noted: there was no run yet
    return lines


def _line(run: Any, pid: int, address: str) -> str:
    """What was closed; and the page that shows it, where a server has one."""
    link = f"; {address.rstrip('/')}/#/experiments/{run.info.experiment_id}/runs/{run.info.run_id}"
    return (
        f"MLflow run {run.info.run_id} of stage {run.data.tags.get('harr.stage', '')} was cut off by a kill "
        f"(pid {pid}) and is closed as KILLED{link if address.startswith('http') else ''}"
    )


def _running(client: Any, experiment: str, which: str) -> list[Any]:
    found: list[Any] = client.search_runs([experiment], f"{which} and attributes.status = 'RUNNING'", max_results=100)
    return found


def _close(client: Any, run: Any, pid: int) -> None:
    client.set_tag(run.info.run_id, "harr.killed", f"process {pid} was gone; closed by {me()}")
    client.set_terminated(run.info.run_id, "KILLED", int(time.time() * 1000))
