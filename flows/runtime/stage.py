"""How a flow runs: where there is room for it, in a folder only once, under Prefect if that can be had."""

import asyncio
import contextlib
import copy
import functools
import os
import shutil
import sys
from pathlib import Path
from typing import Any
from uuid import UUID

import psutil

from flows.runtime import flow_runs, limits, locks, signals
from flows.runtime.told import block
from harr.errors import ServiceUnavailable
from harr.io import progress
from harr.params import Params
from tasks.sentences import SENTENCES
from tasks.tracking.execution import recipe_here

PARENT = "HARR_PARENT_TASK_RUN"


def say(line: str) -> None:
    """Print a line; in a run of Prefect it stands in the run's log, too."""
    from prefect.exceptions import MissingContextError
    from prefect.logging import get_run_logger

    print(line, flush=True)
    with contextlib.suppress(MissingContextError):
        get_run_logger().info(line)


def run_flow(flow: Any, *, checks: bool = False, **parameters: Any) -> Any:
    """Run a flow; one of a stage only where there is room for it, and in a folder only once.

    Args:
        flow: a flow of Prefect.
        checks: it checks data; Great Expectations is loaded meanwhile in a process of its own.
        parameters: of the flow.

    Raises:
        NoRoom: too little disk or memory. InUse: another process runs this stage here.
    """
    with contextlib.ExitStack() as stack:
        if flow.name in SENTENCES:
            free, memory = shutil.disk_usage(Path()).free, limits.memory_limit(psutil.virtual_memory().total)
            params = Params.load()
            limits.check(flow.name, params, Path(), free=free, memory=memory)
            stack.enter_context(locks.alone(flow.name))
            stack.enter_context(block(flow.name, params))
        if checks:
            from tasks.expectations.process import checker

            checker()
        from flows.server import ensure_server

        try:
            url = ensure_server()
        except ServiceUnavailable as error:
            print(f"warning: {error}; running without Prefect", file=sys.stderr)
            return _run_plainly(flow, parameters)
        return _run_under_prefect(guarded(flow), parameters, url)


def _run_under_prefect(flow: Any, parameters: dict[str, Any], url: str) -> Any:
    from prefect.settings import PREFECT_API_URL, PREFECT_CLIENT_MAX_RETRIES, temporary_settings

    from flows.runtime.prefect_retries import outlast_the_server

    outlast_the_server()
    os.environ["PREFECT_API_URL"] = url
    with temporary_settings({PREFECT_API_URL: url, PREFECT_CLIENT_MAX_RETRIES: 0}):
        flow_runs.sweep()
        if parent := os.environ.get(PARENT):
            return asyncio.run(_run_as_child(flow, UUID(parent)))
        return asyncio.run(flow(**parameters)) if flow.isasync else flow(**parameters)


def _run_plainly(flow: Any, parameters: dict[str, Any]) -> Any:
    """Run a flow's function with every task called as the plain function it wraps."""
    from prefect import Task
    from prefect.utilities.annotations import quote

    def call(task: Any, *values: Any, **named: Any) -> Any:
        told = [value.unquote() if isinstance(value, quote) else value for value in values]
        return task.fn(*told, **named)

    Task.__call__ = call  # type: ignore[method-assign,assignment]
    result = flow.fn(**parameters)
    return asyncio.run(result) if flow.isasync else result


def guarded(flow: Any) -> Any:
    """Return a copy of the flow for a process of ours: its run is noted, and a signal stops and cancels it."""
    from prefect.runtime import flow_run

    body, guard = flow.fn, copy.copy(flow)

    @functools.wraps(body)
    async def run_async(*values: Any, **named: Any) -> Any:
        with signals.handled(), flow_runs.noted(flow_run.id):
            return await body(*values, **named)

    @functools.wraps(body)
    def run(*values: Any, **named: Any) -> Any:
        with signals.handled(), flow_runs.noted(flow_run.id):
            return body(*values, **named)

    guard.fn = run_async if flow.isasync else run
    guard.flow_run_name = flow.flow_run_name or f"{flow.name} ({recipe_here()})"
    guard.on_crashed_hooks = [*flow.on_crashed_hooks, _mark_stopped]
    return guard


def _mark_stopped(flow: Any, flow_run: Any, state: Any) -> None:
    """Mark a run as Cancelled that a signal stopped: it has not crashed."""
    from prefect.client.orchestration import get_client
    from prefect.states import Cancelled

    if progress.stop_asked():
        with get_client(sync_client=True) as client:
            client.set_flow_run_state(flow_run.id, Cancelled(message="Stopped by a signal."), force=True)


async def _run_as_child(flow: Any, parent_task_run: UUID) -> Any:
    """Run the flow as a sub-flow of `harr run`, across processes."""
    from prefect.client.orchestration import get_client
    from prefect.flow_engine import run_flow

    async with get_client() as client:
        flow_run = await client.create_flow_run(flow, name=flow.flow_run_name, parent_task_run_id=parent_task_run)
    running: Any = run_flow(flow, flow_run=flow_run)
    return await running
