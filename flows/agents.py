"""Stages on agents: machines that share no folder with the pipeline, only git, DVC's remote and server addresses.

The pipeline sends its files as a commit (flows/commits.py) and its data by `dvc push`; the agent takes both, brings the
stage up to date, and sends back its outputs and a commit with dvc.lock; DVC then finds the stage done here, too.
"""

import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prefect import flow

from flows import HEARTBEAT
from flows.commits import drop_commit, receive_files, repository, send_commit
from flows.reproduce import StageFailed, reproduce
from flows.stages import dvc_status
from flows.unfinished import unfinished_work
from harr.errors import HarrError, ParamsError, bare
from harr.io.files import fingerprint
from harr.io.yaml_file import read_yaml
from harr.params import Params
from tasks.paths import INPUTS, LOCK, SETTINGS
from tasks.tracking.client import address_of

if TYPE_CHECKING:
    from prefect.client.schemas.objects import FlowRun

CACHE = Path("~/.cache/harr/dvc")
"""An agent's DVC cache, shared by all its runs."""
RETRIES = 2
"""How often a stage is sent again if its agent is lost: killed, out of memory, taken away."""
POLL_SECONDS = 2.0


@flow(name="agent", log_prints=True)
def agent(stage: str, ref: str, execution: str) -> None:
    """Bring one stage up to date in a checkout of the pipeline's commit, and send back what it made.

    Args:
        stage: its name in dvc.yaml.
        ref: the ref of the commit, and then of the answer.
        execution: the name under which MLflow keeps the stages of a pipeline run together.
    """
    here = Path()
    _dvc(here, "config", "--local", "cache.dir", str(CACHE.expanduser()))
    _dvc(here, "pull", "--with-deps", "--run-cache", "--allow-missing", stage)
    with unfinished_work(here, stage, fingerprint((here / INPUTS / f"{stage}.json").read_text(encoding="utf-8"))):
        reproduce([stage], here, execution, print)
        _dvc(here, "push", "--run-cache", stage)
        send_commit(here, ref, [LOCK, *_files_in_git(here, stage)])


def run_on_agent(stage: str, place: Path, pool: str, execution: str) -> None:
    """Bring a stage up to date on an agent of a work pool; send nothing if it is up to date.

    Args:
        stage: its name in dvc.yaml.
        place: the project's folder, or a recipe's.
        pool: the work pool to which deployment ``agent/<pool>`` of prefect.yaml sends its runs.
        execution: the name under which MLflow keeps the stages of this run together.

    Raises:
        ParamsError: MLflow is a file on this machine, or there is no git remote.
        StageFailed: the stage failed, or every agent that had it was lost.
    """
    variables = {"HARR_REPOSITORY": repository(), **HEARTBEAT, **_tracking(place)}
    if (place / LOCK).exists() and not dvc_status(place, stage):
        return
    ref = f"refs/harr/{execution}/{stage}"
    _dvc(place, "push", "--run-cache")
    variables["HARR_COMMIT"] = send_commit(place, ref, [SETTINGS, LOCK])
    try:
        name = f"{stage} ({place.name or SETTINGS})"
        _send_stage(pool, name, {"stage": stage, "ref": ref, "execution": execution}, variables)
        receive_files(place, ref, [LOCK, *_files_in_git(place, stage)])
    finally:
        drop_commit(ref)
    _dvc(place, "pull", stage)


def _send_stage(pool: str, name: str, parameters: Mapping[str, str], variables: Mapping[str, str]) -> None:
    """Have an agent of a pool bring the stage up to date, or another one if that is lost; a failure is final."""
    for left in reversed(range(1 + RETRIES)):
        state = _wait_for_agent(f"agent/{pool}", name, parameters, variables)
        if state.is_completed():
            return
        if not state.is_crashed():
            break
        print(f"the agent of {name} was lost: {state.message}; {left} tries left")
    raise StageFailed(f"stage {name} on an agent of {pool}: {state.name}: {state.message}")


def _wait_for_agent(deployment: str, name: str, parameters: Mapping[str, str], variables: Mapping[str, str]) -> Any:
    """Return the last state of a new run of a deployment; cancel the run if this process is stopped."""
    from prefect.client.orchestration import get_client
    from prefect.deployments import run_deployment
    from prefect.exceptions import ObjectNotFound
    from prefect.states import Cancelling

    shown = ""
    try:
        run: FlowRun = run_deployment(  # type: ignore[assignment]  # this is no coroutine
            deployment, parameters={**parameters}, job_variables={"env": {**variables}}, flow_run_name=name, timeout=0
        )
    except ObjectNotFound:
        raise ParamsError(f"Prefect has no deployment {deployment}; `prefect deploy --all`") from None
    with get_client(sync_client=True) as client:
        try:
            while not ((state := client.read_flow_run(run.id).state) and state.is_final()):
                if state and state.name != shown:
                    shown = state.name or ""
                    print(f"{name}: {shown.lower()} in {deployment}")
                time.sleep(POLL_SECONDS)
        except BaseException:
            client.set_flow_run_state(run.id, Cancelling(message="the pipeline was stopped"))
            raise
    return state


def _tracking(place: Path) -> dict[str, str]:
    """Return the variable that names MLflow's server.

    Raises:
        ParamsError: there is no server that another machine can reach.
    """
    address = address_of(Params.load(place / SETTINGS))
    if not address.startswith("http"):
        raise ParamsError(
            f"MLflow is {bare(address)}, but an agent reports to a server; name it, or set the variable "
            "MLFLOW_TRACKING_URI to its address"
        )
    return {"MLFLOW_TRACKING_URI": address}


def _files_in_git(place: Path, stage: str) -> list[Path]:
    """Return the outputs of a stage that DVC keeps in git, `cache: false`."""
    entry = read_yaml(place / "dvc.yaml", mend="bring it back with git")["stages"][stage]
    outputs = [item for kind in ("outs", "metrics", "plots") for item in entry.get(kind, ()) if isinstance(item, dict)]
    return [Path(path) for item in outputs for path, how in item.items() if how.get("cache") is False]


def _dvc(place: Path, *words: str) -> None:
    """Run DVC; it prints its progress.

    Raises:
        HarrError: its last line, and its first one if several failed, which has the reason.
    """
    command = [sys.executable, "-m", "dvc", *words]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = done.stderr.splitlines()
        errors = [line for line in lines if line.startswith("ERROR")] or lines[-1:]
        ends = dict.fromkeys([*errors[-1:], *errors[:1]])
        raise HarrError(f"dvc {words[0]}: {'; '.join(line.removeprefix('ERROR: ') for line in ends)}")
    for line in done.stdout.splitlines():
        print(line)
