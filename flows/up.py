"""Everything that runs by itself on one machine, without Docker: `harr up` and `harr down`.

Starts a Prefect server, an MLflow server over mlflow.db, and one Prefect worker for each of the work pools cpu and gpu;
makes the pools, and the deployments of prefect.yaml; and starts `harr serve` where the registry has a champion. All of
it listens on loopback only. Milvus Lite needs no server: each stage opens the folder data/index.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil

from flows.server import HEARTBEAT, TEMPORARY, UP, addresses, healthy, listens, log_of, mlflow_command, prefect_command
from harr.errors import HarrError, ServiceUnavailable, one_line
from harr.io.files import read_json, write_json
from harr.io.progress import bar, show_parts
from harr.params import Params
from harr.services.model_registry import CHAMPION, open_registry, registry_address, resolve
from tasks.paths import INDEX
from tasks.runtime.command import run_command
from tasks.runtime.gpus import visible_gpus
from tasks.tracking.execution import is_alive, pid_of, process_name

START_SECONDS = 240.0
STOP_SECONDS = 20.0
CANCEL_SECONDS = 45.0
"""The worker gives a cancelled run 30 s."""
SILENT_SECONDS = 95
"""Seconds without a heartbeat of a run until it counts as crashed."""
POOLS = ("cpu", "gpu")
WORK = {"Prefect": "/runs", "MLflow": "/#/experiments?workflowType=machine_learning"}
"""Where on a server the work is seen; the first page of MLflow is on language models."""
PARTS = ("servers", "deployments", "workers", "harr serve")


def up(prefect_port: int, mlflow_port: int, serve_port: int) -> None:
    """Start what does not run yet and bring the deployments up to date; prints the pages.

    Raises:
        ServiceUnavailable: a port is taken, or a server ended or did not answer.
    """
    started = _running()
    before = set(started)
    url = f"http://127.0.0.1:{prefect_port}/api"
    if "Prefect" in started:
        url = f"{started['Prefect']['page']}/api"
    os.environ["PREFECT_API_URL"] = url
    progress = bar(total=len(PARTS), desc="harr up", unit="part")
    parts = show_parts(progress, PARTS)
    try:
        next(parts)
        _start_servers(started, prefect_port, mlflow_port)
        next(parts)
        limit = len(visible_gpus())
        prepare_prefect(limit)
        next(parts)
        for pool in POOLS:
            if f"worker {pool}" not in started:
                command = [sys.executable, "-m", "prefect", "worker", "start", "--pool", pool, "--name", f"harr-{pool}"]
                _start(started, f"worker {pool}", command, {**os.environ, **_worker_settings()})
        next(parts)
        _start_retriever(started, serve_port)
        next(parts, None)
    except BaseException:
        _stop([started.pop(name) for name in set(started) - before])
        write_json(UP, started)
        if not started:
            _forget()
        raise
    finally:
        progress.close()
    for name, page in addresses().items():
        print(f"{name:<8} {page}{WORK.get(name, '')}")
    print(f"workers  cpu, gpu ({f'{limit} GPUs' if limit else 'no GPU is visible: on the CPU'}); logs in .harr")


def _worker_settings() -> dict[str, str]:
    """Look for work every 5 s; cancel runs before they begin; say that runs live; keep temporary files where `down`
    finds them."""
    TEMPORARY.mkdir(parents=True, exist_ok=True)
    settings = {"TMPDIR": str(TEMPORARY.resolve())}
    looks = {"PREFECT_WORKER_QUERY_SECONDS": "5", "PREFECT_WORKER_ENABLE_CANCELLATION": "true"}
    return {**settings, **looks, **HEARTBEAT}


def down() -> None:
    """Cancel what the workers run, stop workers and servers, and take their files away."""
    started = _running()
    if "Prefect" in started:
        os.environ["PREFECT_API_URL"] = f"{started['Prefect']['page']}/api"
        with _whatever_the_server_does("running flow runs may be shown as Running"):
            _cancel()
    _stop([note for name, note in started.items() if name.startswith("worker")])
    _stop([note for name, note in started.items() if not name.startswith("worker")])
    _forget()


def _forget() -> None:
    UP.unlink(missing_ok=True)
    shutil.rmtree(TEMPORARY, ignore_errors=True)


@contextlib.contextmanager
def _whatever_the_server_does(effect: str) -> Iterator[None]:
    """Go on whatever the server does: `harr down` must stop a server that hangs, too."""
    try:
        yield
    except Exception as error:
        print(f"warning: runs were not cancelled in Prefect ({one_line(error)}); {effect}", file=sys.stderr)


def _running() -> dict[str, Any]:
    """Return what an earlier `harr up` started and still runs; what is left of a killed server is ended.

    A server's children keep its port. A killed worker's go on with the stage that they are at.
    """
    started = read_json(UP) if UP.exists() else {}
    alive = {name: note for name, note in started.items() if is_alive(note["process"])}
    for name in started.keys() - alive.keys():
        if started[name]["page"]:
            _end_group(pid_of(started[name]["process"]))
    return alive


def _end_group(leader: int) -> None:
    """Kill what is left of a group whose leader is gone; one that has a leader is another program's."""
    group = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            if os.getpgid(process.pid) == leader and process.status() != psutil.STATUS_ZOMBIE:
                group.append(process)
    if any(process.pid == leader for process in group):
        return
    for process in group:
        process.kill()
    psutil.wait_procs(group, timeout=STOP_SECONDS)


def _start_servers(started: dict[str, Any], prefect_port: int, mlflow_port: int) -> None:
    """Start the servers at once; they take some seconds to come up."""
    ports = {"Prefect": prefect_port, "MLflow": mlflow_port}
    for name, make in (("Prefect", prefect_command), ("MLflow", mlflow_command)):
        if name not in started:
            _check_free(name, ports[name])
            command, environment = make(ports[name])
            _start(started, name, command, environment, page=f"http://127.0.0.1:{ports[name]}")
    _wait_for(started, "Prefect", lambda: healthy(f"{started['Prefect']['page']}/api"))
    _wait_for(started, "MLflow", lambda: _answers(f"{started['MLflow']['page']}/health"))


def _start_retriever(started: dict[str, Any], port: int) -> None:
    """Start `harr serve` where there is a champion and an index; one that does not come up stops nothing else."""
    if "Serve" in started or not (INDEX / "manifest.json").exists():
        return
    try:
        registered = Params.load().tracking.registered_model
        if resolve(open_registry(registry_address(Path())), f"models:/{registered}@{CHAMPION}").kind != "retriever":
            return
    except HarrError:  # nothing was promoted yet
        return
    _check_free("Serve", port)
    page = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "flows.cli", "serve", "--port", str(port)]
    _start(started, "Serve", command, {**os.environ}, page=page)
    try:
        _wait_for(started, "Serve", lambda: _answers(f"{page}/health"))
    except ServiceUnavailable as error:
        _stop([started.pop("Serve")])
        write_json(UP, started)
        print(f"warning: {error}", file=sys.stderr)


def _check_free(name: str, port: int) -> None:
    if listens(port):
        raise ServiceUnavailable(
            f"port {port} for {name} is taken by another program; `harr up --{name.lower()}-port N`"
        )


def _answers(url: str) -> bool:
    try:
        urllib.request.urlopen(url, timeout=2).close()
    except OSError:
        return False
    return True


def _start(started: dict[str, Any], name: str, command: list[str], environment: dict[str, str], page: str = "") -> None:
    """Start a program that outlives this one, with a log of its own; noted before anything else happens."""
    UP.parent.mkdir(parents=True, exist_ok=True)
    with log_of(name).open("ab") as sink:
        process = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, start_new_session=True
        )
    started[name] = {"process": process_name(process.pid), "page": page}
    write_json(UP, started)


def _wait_for(started: dict[str, Any], name: str, ready: Callable[[], bool]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not ready():
        if not is_alive(started[name]["process"]):
            raise ServiceUnavailable(f"the {name} server has ended; see {log_of(name)}")
        if time.monotonic() > deadline:
            raise ServiceUnavailable(
                f"the {name} server did not answer within {START_SECONDS:.0f} s; see {log_of(name)}"
            )
        time.sleep(0.2)


def prepare_prefect(gpus: int) -> None:
    """Make the work pools, the deployments and the watch over runs at the server of PREFECT_API_URL.

    Raises:
        ServiceUnavailable: it does not take the deployments.
    """
    _prepare_pools(max(gpus, 1))
    _watch_runs()
    _deploy()


def _prepare_pools(limit: int) -> None:
    """Prepare the work pools, and how many runs the pool gpu has at a time; what is there already stays as it is."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.actions import WorkPoolCreate
    from prefect.exceptions import ObjectAlreadyExists
    from prefect.workers.process import ProcessWorker

    template = ProcessWorker.get_default_base_job_template()
    with get_client(sync_client=True) as client:
        for name in POOLS:
            most = limit if name == "gpu" else None
            pool = WorkPoolCreate(name=name, type="process", base_job_template=template, concurrency_limit=most)
            with contextlib.suppress(ObjectAlreadyExists):
                client.create_work_pool(pool)


def _deploy() -> None:
    command = [sys.executable, "-m", "prefect", "--no-prompt", "deploy", "--all"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = " ".join((done.stderr or done.stdout).split())[-300:]
        raise ServiceUnavailable(f"the deployments of prefect.yaml were not taken: {reason}")


def _watch_runs() -> None:
    """Have Prefect mark a run without heartbeat as Crashed: its process was killed, or its machine."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.objects import StateType
    from prefect.events.actions import ChangeFlowRunState
    from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture
    from prefect.events.schemas.events import ResourceSpecification

    name, prefix = "crashed runs", "prefect.flow-run."
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
    with get_client(sync_client=True) as client:
        if not client.read_automations_by_name(name):
            client.create_automation(AutomationCore(name=name, trigger=trigger, actions=[action]))


def _cancel() -> None:
    """Cancel runs as the button in Prefect does; wait until the worker reports that they are gone."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterState, FlowRunFilterStateType
    from prefect.client.schemas.objects import StateType
    from prefect.states import Cancelling

    working = FlowRunFilterStateType(any_=[StateType.RUNNING, StateType.PENDING])
    running = FlowRunFilter(state=FlowRunFilterState(type=working))
    with get_client(sync_client=True) as client:
        pending = {run.id for run in client.read_flow_runs(flow_run_filter=running)}
        for flow_run in pending:
            client.set_flow_run_state(flow_run, Cancelling(message="harr down"))
        deadline = time.monotonic() + CANCEL_SECONDS
        while pending and time.monotonic() < deadline:
            time.sleep(0.2)
            pending = {run_id for run_id in pending if not _has_ended(client, run_id)}


def _has_ended(client: Any, flow_run: Any) -> bool:
    """Return whether a run is in a final state: a worker that is stopped before would leave it Cancelling for ever."""
    state = client.read_flow_run(flow_run).state
    return bool(state and state.is_final())


def _stop(notes: list[dict[str, Any]]) -> None:
    """Stop by TERM, wait, then KILL whatever is left, with all that these processes had started."""
    leaders = [psutil.Process(pid_of(note["process"])) for note in notes if is_alive(note["process"])]
    family = [child for leader in leaders for child in leader.children(recursive=True)]
    for leader in leaders:
        leader.send_signal(signal.SIGTERM)
    _, alive = psutil.wait_procs([*leaders, *family], timeout=STOP_SECONDS)
    for process in alive:
        process.kill()
    psutil.wait_procs(alive, timeout=5)


if __name__ == "__main__":  # in a container, whose servers compose has started
    run_command(lambda: prepare_prefect(len(visible_gpus())))
