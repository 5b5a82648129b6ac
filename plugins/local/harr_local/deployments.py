"""What a Prefect server must have: work pools, the deployments of prefect.yaml, and a watch for crashed runs.

``python -m harr_local.deployments`` creates them on the server at PREFECT_API_URL, wherever it runs.
"""

import contextlib
import subprocess
import sys
import time
from datetime import timedelta
from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterState, FlowRunFilterStateType
from prefect.client.schemas.objects import StateType
from prefect.events.actions import ChangeFlowRunState
from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture
from prefect.events.schemas.events import ResourceSpecification
from prefect.exceptions import ObjectAlreadyExists
from prefect.states import Cancelled, Cancelling
from prefect.workers.process import ProcessWorker

from harr.errors import ServiceUnavailable, one_line
from tasks.runtime.command import run_command
from tasks.runtime.gpus import visible_gpus

POOLS = ("cpu", "gpu")
WATCH = "crashed runs"
SILENT_SECONDS = 95
"""Seconds without a heartbeat after which a run counts as crashed."""
CANCEL_SECONDS = 45.0
"""Seconds to wait for cancelled runs to end; the worker gives them 30 s."""


def prepare_prefect(gpus: int) -> None:
    """Create the work pools, the deployments and the watch over runs; existing pools stay as they are.

    Raises:
        ServiceUnavailable: the server rejects the deployments.
    """
    template = ProcessWorker.get_default_base_job_template()
    with get_client(sync_client=True) as client:
        for name in POOLS:
            most = max(gpus, 1) if name == "gpu" else None
            pool = WorkPoolCreate(name=name, type="process", base_job_template=template, concurrency_limit=most)
            with contextlib.suppress(ObjectAlreadyExists):
                client.create_work_pool(pool)
        if not client.read_automations_by_name(WATCH):
            client.create_automation(_watch())
    command = [sys.executable, "-m", "prefect", "--no-prompt", "deploy", "--all"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ServiceUnavailable(f"the deployments of prefect.yaml were not taken: {one_line(done.stderr[-300:])}")


def _watch() -> AutomationCore:
    """Return the automation that marks a run without heartbeat as Crashed: its process or its machine died."""
    prefix = "prefect.flow-run."
    ends = {f"{prefix}{state}" for state in ("Completed", "Failed", "Cancelled", "Crashed", "Kept")}
    trigger = EventTrigger(
        posture=Posture.Proactive,
        match=ResourceSpecification({"prefect.resource.id": f"{prefix}*"}),
        for_each={"prefect.resource.id"},
        after={f"{prefix}heartbeat"},
        expect={f"{prefix}heartbeat", *ends},
        threshold=1,
        within=timedelta(seconds=SILENT_SECONDS),
    )
    gone = "The process of this run is gone (killed, or the machine went down)."
    action = ChangeFlowRunState(state=StateType.CRASHED, message=gone)
    return AutomationCore(name=WATCH, trigger=trigger, actions=[action])


def cancel_runs() -> None:
    """Cancel runs as Prefect's button does, and wait for some time until the workers report that they are gone."""
    with get_client(sync_client=True) as client:
        pending = _list_runs(client, StateType.RUNNING, StateType.PENDING)
        for run in pending:
            client.set_flow_run_state(run, Cancelling(message="harr down"))
        deadline = time.monotonic() + CANCEL_SECONDS
        while pending and time.monotonic() < deadline:
            time.sleep(0.2)
            states = {run: client.read_flow_run(run).state for run in pending}
            pending = {run for run, state in states.items() if not (state and state.is_final())}


def close_runs() -> None:
    """Mark runs as Cancelled whose worker was stopped before it could report that they are gone."""
    with get_client(sync_client=True) as client:
        for run in _list_runs(client, StateType.CANCELLING):
            client.set_flow_run_state(run, Cancelled(message="harr down"), force=True)


def _list_runs(client: SyncPrefectClient, *states: StateType) -> set[UUID]:
    kind = FlowRunFilterState(type=FlowRunFilterStateType(any_=[*states]))
    return {run.id for run in client.read_flow_runs(flow_run_filter=FlowRunFilter(state=kind))}


if __name__ == "__main__":
    run_command(lambda: prepare_prefect(len(visible_gpus())))
