"""MLflow's runs and registry, as its client tells them."""

import contextlib
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from flows.doctor.addresses import ask
from flows.doctor.finding import Finding, fail, ok, warn
from harr.errors import DamagedFile, ServiceUnavailable, bare
from harr.io.files import digest_of, read_jsonl, read_state
from harr.params import Params
from tasks.paths import trained_folder
from tasks.tracking.client import client_of
from tasks.tracking.errors import found, service

NEWEST = 200
"""Number of runs that are looked at, one page of a large store."""
TAGS = ("mlflow.parentRunId", "harr.execution", "harr.stage")


@dataclass(frozen=True)
class LoggedRun:
    """A run; times are seconds since 1970, 0 where it has not ended. ``stage`` is empty for a parent run."""

    id: str
    name: str
    status: str
    started: float
    ended: float
    parent: str = ""
    execution: str = ""
    stage: str = ""


@dataclass(frozen=True)
class Version:
    """A registered model version that an alias names, and its headline figure over ``n`` questions."""

    alias: str
    number: str
    run: str
    index: str
    created: float
    figure: float | None = None
    n: int = 0
    model: str = ""
    """The hash of its files."""


@dataclass(frozen=True)
class Store:
    """The newest runs, newest first, and the versions with an alias."""

    runs: tuple[LoggedRun, ...] = ()
    versions: tuple[Version, ...] = ()


def store_address(params: Params, environment: Mapping[str, str]) -> str:
    """Return where runs go: tracking.uri, else MLFLOW_TRACKING_URI, else mlflow.db in this folder."""
    return params.tracking.uri or environment.get("MLFLOW_TRACKING_URI", "") or "sqlite:///mlflow.db"


def read_store(root: Path, address: str, params: Params) -> Store:
    """Return the runs and versions of a store; a database file is opened for reading only.

    Raises:
        DamagedFile: the SQLite file is none.
        ServiceUnavailable: the server does not answer.
    """
    if address.startswith("sqlite:///"):
        path = root / address.removeprefix("sqlite:///")
        if not path.exists() or not path.stat().st_size:
            return Store()
        address = f"sqlite:///file:{quote(str(path))}?mode=ro&uri=true"
    if urlsplit(address).scheme in ("http", "https"):
        _check_health(address)
    with service():
        client = client_of(address)
        return Store(_runs(client, params.tracking.experiment), _versions(client, params))


def _check_health(address: str) -> None:
    """Ask a server first: MLflow's own client waits much longer for one that is away.

    Raises:
        ServiceUnavailable: it does not answer, or answers with an error.
    """
    try:
        answer = ask(f"{address.rstrip('/')}/health")
    except ServiceUnavailable as error:
        raise ServiceUnavailable(
            f"MLflow at {bare(address)} does not answer ({error}); start it (`mlflow server --host 127.0.0.1`), or "
            'tracking.uri: "" to keep runs in mlflow.db'
        ) from None
    if answer.is_error:
        what = f"MLflow at {bare(address)} answers {answer.status_code} ({answer.reason_phrase})"
        raise ServiceUnavailable(f"{what}; see its --allowed-hosts")


def _runs(client: Any, experiment: str) -> tuple[LoggedRun, ...]:
    known = client.get_experiment_by_name(experiment)
    where, order = [known.experiment_id] if known else [], ["attributes.start_time DESC"]
    runs = client.search_runs(where, order_by=order, max_results=NEWEST) if known else ()
    return tuple(_run(one.info, one.data.tags) for one in runs)


def _run(info: Any, tags: Mapping[str, str]) -> LoggedRun:
    started, ended = ((time or 0) / 1000 for time in (info.start_time, info.end_time))
    return LoggedRun(
        info.run_id, info.run_name or "", info.status, started, ended, *(tags.get(tag, "") for tag in TAGS)
    )


def _versions(client: Any, params: Params) -> tuple[Version, ...]:
    name = params.tracking.registered_model
    model, versions = found(client.get_registered_model, name), []
    for alias, number in sorted(model.aliases.items()) if model else ():
        one = client.get_model_version(name, number)
        figures = _figures(client, one.run_id or "", params.headline)
        figure = sum(figures) / len(figures) if figures else None
        index, created = one.tags.get("index", ""), one.creation_timestamp / 1000
        told = alias, str(number), one.run_id or "", index, created, figure, len(figures)
        versions.append(Version(*told, one.tags.get("model", "")))
    return tuple(versions)


def _figures(client: Any, run: str, headline: str) -> list[float]:
    """Return the figures that promotion compares, one a question; none where the rows cannot be had."""
    with contextlib.suppress(Exception), tempfile.TemporaryDirectory() as folder:
        rows = read_jsonl(Path(client.download_artifacts(run, "evaluation/full.jsonl", folder)))
        return [float(row[headline]) for row in rows if row.get(headline) is not None]
    return []


def lost_runs(store: Store, executions: set[str]) -> list[LoggedRun]:
    """Return the parent runs that are marked as running, but whose process is gone."""
    return [run for run in store.runs if run.status == "RUNNING" and run.execution and run.execution not in executions]


def check_runs(address: str, store: Store, executions: set[str]) -> list[Finding]:
    """Look for runs that nobody will ever end; on a server another machine may be at work on them."""
    if not address.startswith("sqlite"):
        return [ok("runs", f"{len(store.runs)} seen")]
    lost = lost_runs(store, executions)
    children = [run.id for run in store.runs if run.status == "RUNNING" and run.parent in {one.id for one in lost}]
    ids = [one.id for one in lost] + children
    if ids:
        names = ", ".join(run.name for run in lost[:3])
        loop = f"[MlflowClient({address!r}).set_terminated(run, 'KILLED') for run in {ids[:20]}]"
        what = f"marked as running, but their process is gone: {names}"
        return [warn("runs", what, f'python -c "from mlflow import MlflowClient; {loop}"')]
    return [ok("runs", f"{len(store.runs)} seen, none abandoned")]


def model_here(root: Path, params: Params) -> str:
    """Return the hash of the files of the trained model that is here, as a version notes it; empty without one."""
    here = root / trained_folder(params)[1]
    return digest_of(here) if here.exists() else ""


def check_registry(root: Path, store: Store, params: Params) -> list[Finding]:
    """Look whether the champion was trained for the index that is here, and the candidate is the model in models/."""
    name = params.tracking.registered_model
    try:
        identity = read_state(root / "data/vectors/manifest.json", "", identity=str)["identity"]
    except DamagedFile:
        identity = ""
    findings = []
    for version in store.versions:
        if identity and version.index and version.index != identity and version.alias != "previous_champion":
            what = f"{version.alias} {version.number} of {name} is for index {version.index}, not {identity}"
            if version.alias == "champion":
                fix = "set params.yaml to the champion's (in its MLflow run) and `dvc repro index`, or promote another"
                findings.append(fail("registry", what, fix))
            else:
                findings.append(warn("registry", what, "dvc repro"))
        if version.alias == "candidate" and version.model and model_here(root, params) not in ("", version.model):
            what = f"candidate {version.number} of {name} is not the model in models/"
            findings.append(warn("registry", what, "harr register   (or `dvc repro`, where that is not up to date)"))
    named = ", ".join(f"{version.alias} {version.number}" for version in store.versions)
    return findings or [ok("registry", f"{name}: {named}" if named else f"{name}: no version yet")]
