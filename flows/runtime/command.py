"""How a stage runs as a command: parameters first, then Prefect, then the flow; errors in one line."""

import argparse
import asyncio
import contextlib
import copy
import errno
import functools
import gc
import os
import re
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import psutil

from flows.runtime import flow_runs, limits, locks
from harr.errors import HarrError, ParamsError, ServiceUnavailable
from harr.io import progress
from harr.params import Params

PARENT = "HARR_PARENT_TASK_RUN"
LEAD_SECONDS = 20.0
"""So long another process waits with its error for the main one, which mostly has the same and tells it first."""
STAGES = ("download", "embed", "index", "generator", "filter", "train", "arms", "evaluate", "merge")
DISK_FAULTS = {
    errno.ENOSPC: ("the disk is full", "make room"),
    errno.EDQUOT: ("the quota is used up", "make room"),
    errno.EROFS: ("the file system is read-only", "mount it for writing"),
    errno.EACCES: ("permission denied", "give the right to read and write there"),
    errno.EIO: ("the disk has an error", "look at the system's log"),
    errno.EXDEV: ("it is on another disk", "put both on one disk"),
    errno.EEXIST: ("a file, or a link to nothing, has this name", "move it away"),
    errno.ENOTDIR: ("a file is where a folder belongs", "move it away"),
    errno.EISDIR: ("a folder is where a file belongs", "move it away"),
    errno.ELOOP: ("its links lead in a circle", "mend them"),
    errno.ENAMETOOLONG: ("this name is too long for the disk", "use a shorter one"),
}
LESS_MEMORY = "lower embed.batch_size, filter.batch_size, train.states_per_pass or train.episodes_per_pass"
FINISH_SECONDS = 4.0
"""So long a stopped stage may take to finish its shard, batch or step."""
LAST_SECONDS = 3.0
"""So long a stopped process may take to end when its work is over."""


def main(
    stage: Any,
    *,
    checks: bool = False,
    arguments: list[str] | None = None,
    join: Callable[[Params], Any] | None = None,
) -> None:
    """Run a stage's flow as a command and exit: 0, 1 for a ``HarrError``, 130 or 143 for a signal.

    ``checks``: the stage checks data; Great Expectations is loaded meanwhile in a process of its own.
    ``join``: the stage's plain work, for the further processes of `accelerate launch`; without it the stage
    is for one process only.
    """
    parser = argparse.ArgumentParser(prog=f"python -m flows.{stage.name}", description=stage.__doc__)
    parser.parse_args(arguments)
    run_command(lambda: _take_part(stage, join, checks))


def say(line: str) -> None:
    """Print a line; in a run of Prefect it stands in the run's log, too."""
    from prefect.exceptions import MissingContextError
    from prefect.logging import get_run_logger

    print(line, flush=True)
    with contextlib.suppress(MissingContextError):
        get_run_logger().info(line)


def _take_part(stage: Any, join: Callable[[Params], Any] | None, checks: bool) -> None:
    for name in ("WORLD_SIZE", "RANK"):
        if not (said := os.environ.get(name, "1")).isdecimal():
            raise ParamsError(f"{name} is {said!r}; expected a number, as `accelerate launch` sets it; or unset it")
    if _processes() > 1 and (join is None or not _leads()):
        _accompany(stage, join)
    else:
        run_stage(stage, checks=checks)


def _processes() -> int:
    """How many processes `accelerate launch` started; what is no number is one, and refused by a stage."""
    said = os.environ.get("WORLD_SIZE", "1")
    return int(said) if said.isdecimal() else 1


def _leads() -> bool:
    """Whether this is the main process, or the only one."""
    return os.environ.get("RANK", "0") == "0"


def _accompany(stage: Any, join: Callable[[Params], Any] | None) -> None:
    """Join the main process in its plain work; it alone talks to Prefect, MLflow and the user."""
    try:
        if join is None:
            raise ParamsError(f"stage {stage.name} runs in one process: `python -m flows.{stage.name}`")
        join(Params.load())
    except HarrError:
        time.sleep(0 if _leads() else LEAD_SECONDS)
        raise


def run_command(body: Callable[[], Any]) -> None:
    """Call ``body`` and leave the process; a user's mistake is one line on stderr, never a traceback."""
    with _signals():
        try:
            body()
        except HarrError as error:
            print(f"error: {error}", file=sys.stderr)
            sys.exit(1)
        except Exception as error:
            if type(error).__module__.startswith("httpx"):  # a process that stops need not tell a server that is away
                progress.leave()
            if not (said := machine_fault(error)):
                raise
            print(f"error: {said}", file=sys.stderr)
            sys.exit(1)
        finally:
            gc.freeze()  # spares the interpreter a last look at all of torch: up to 2 s
            if progress.stop_asked():
                _end_soon()


def machine_fault(error: Exception) -> str:
    """What a full disk, a forbidden file or too little memory means, in a line; "" for any other error.

    >>> machine_fault(OSError(errno.ENOSPC, "No space left on device", "data/vectors/x"))[:60]
    'data/vectors/x: the disk is full; what is finished is kept; '
    >>> machine_fault(ValueError("no"))
    ''
    """
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":  # torch's
        said = str(error).partition(". ")[0] or "out of memory"
        return f"{said}; what is finished is kept; {LESS_MEMORY} and run the same command again"
    number = error.errno if isinstance(error, OSError) else None
    if told := re.search(r"\(os error (\d+)\)", str(error)):  # of a library in Rust, such as safetensors
        number = int(told[1])
    elif "disk is full" in str(error):  # SQLite's
        number = errno.ENOSPC
    if number not in DISK_FAULTS:
        return ""
    where = getattr(error, "filename2", None) or getattr(error, "filename", None) or Path().resolve()
    what, remedy = DISK_FAULTS[number]
    return f"{where}: {what}; what is finished is kept; {remedy} and run the same command again"


def run_stage(stage: Any, *, checks: bool = False, **parameters: Any) -> Any:
    """Run a flow as :func:`_run_stage` says; a stage only where there is room for it, and in a folder only once.

    Raises:
        NoRoom: too little disk or memory. InUse: another process runs this stage here.
    """
    params = Params.load()
    if stage.name not in STAGES:
        return _run_stage(stage, checks=checks, **parameters)
    free, memory = shutil.disk_usage(Path()).free, limits.memory_limit(psutil.virtual_memory().total)
    limits.check(stage.name, params, Path(), free=free, memory=memory)
    with locks.alone(stage.name):
        return _run_stage(stage, checks=checks, **parameters)


def _run_stage(stage: Any, *, checks: bool = False, **parameters: Any) -> Any:
    """Find or start the Prefect server, and run the flow under it.

    Where no local server comes up, the stage runs all the same, as plain functions.
    """
    if checks:
        from tasks.expectations.process import checker

        checker()
    from flows.server import ensure_server

    try:
        url = ensure_server()
    except ServiceUnavailable as error:
        print(f"warning: {error}; running without Prefect", file=sys.stderr)
        return _run_plainly(stage, parameters)
    from prefect.settings import PREFECT_API_URL, temporary_settings

    from flows.runtime.prefect_retries import be_patient

    be_patient()
    os.environ["PREFECT_API_URL"] = url
    stage = guarded(stage)
    with temporary_settings({PREFECT_API_URL: url}):
        flow_runs.sweep()
        if parent := os.environ.get(PARENT):
            return asyncio.run(_run_as_child(stage, UUID(parent)))
        return asyncio.run(stage(**parameters)) if stage.isasync else stage(**parameters)


def guarded(stage: Any) -> Any:
    """A copy of the flow for a process of ours: its run is noted, and a signal stops it and marks it Cancelled."""
    from prefect.runtime import flow_run

    body, guard = stage.fn, copy.copy(stage)

    @functools.wraps(body)
    async def run_async(*values: Any, **named: Any) -> Any:
        with _signals(), flow_runs.noted(flow_run.id):
            return await body(*values, **named)

    @functools.wraps(body)
    def run(*values: Any, **named: Any) -> Any:
        with _signals(), flow_runs.noted(flow_run.id):
            return body(*values, **named)

    guard.fn = run_async if stage.isasync else run
    guard.on_crashed_hooks = [*stage.on_crashed_hooks, _mark_stopped]
    return guard


def _mark_stopped(flow: Any, flow_run: Any, state: Any) -> None:
    """A run that a signal stopped has not crashed."""
    from prefect.client.orchestration import get_client
    from prefect.states import Cancelled

    if progress.stop_asked():
        with get_client(sync_client=True) as client:
            client.set_flow_run_state(flow_run.id, Cancelled(message="Stopped by a signal."), force=True)


async def _run_as_child(stage: Any, parent_task_run: UUID) -> Any:
    """Run the flow as a sub-flow of ``flows.pipeline``, across processes."""
    from prefect.client.orchestration import get_client
    from prefect.flow_engine import run_flow

    async with get_client() as client:
        flow_run = await client.create_flow_run(stage, parent_task_run_id=parent_task_run)
    running: Any = run_flow(stage, flow_run=flow_run)
    return await running


def _run_plainly(stage: Any, parameters: dict[str, Any]) -> Any:
    """Run a flow's function with every task called as the plain function it wraps."""
    from prefect import Task

    def call(task: Any, *values: Any, **named: Any) -> Any:
        return task.fn(*values, **named)

    Task.__call__ = call  # type: ignore[method-assign,assignment]
    result = stage.fn(**parameters)
    return asyncio.run(result) if stage.isasync else result


@contextlib.contextmanager
def _signals() -> Iterator[None]:
    """Our own handlers of SIGINT and SIGTERM for the length of the block.

    Around the command, our SIGINT keeps asyncio from installing a handler that waits for the end of the flow;
    inside the flow, our SIGTERM takes the place of Prefect's, which would leave in the middle of a step.
    """
    before = {number: signal.signal(number, _stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _stop(number: int, frame: object) -> None:
    """Leave after the shard, batch or step that runs; at once where it takes too long, or at a second signal."""
    alone = _processes() == 1  # the others might wait for this one for ever
    if progress.ask_to_stop(lambda: _leave(number)) and alone:
        signal.signal(signal.SIGALRM, lambda *_: _leave(number))
        signal.setitimer(signal.ITIMER_REAL, FINISH_SECONDS)
        _tell("finishing what is in work; again to stop at once")
    else:
        _leave(number)


class _Left:
    """Whether this process has said that it was stopped, and the signal that did it."""

    told = False
    number: int = signal.SIGTERM


def _end_soon() -> None:
    """The work is over; Prefect's threads, which hold states back for a server that hangs, are not waited for."""
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    signal.signal(signal.SIGALRM, lambda *_: os._exit(128 + _Left.number))
    signal.setitimer(signal.ITIMER_REAL, LAST_SECONDS)


def _leave(number: int) -> None:
    signal.setitimer(signal.ITIMER_REAL, 0)
    _Left.number = number
    if _leads() and not _Left.told:
        _Left.told = True
        _tell("stopped; finished work is kept, run the same command again to go on")
    sys.exit(128 + number)


def _tell(line: str) -> None:
    with contextlib.suppress(OSError):  # whoever read it may be gone
        print(line, file=sys.stderr)
