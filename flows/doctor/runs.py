"""MLflow's runs and registry without MLflow: from its SQLite file, or from a server's REST interface."""

import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from flows.doctor.addresses import ask
from flows.doctor.finding import Finding, fail, ok, warn
from harr.errors import DamagedFile, ServiceUnavailable, bare
from harr.io.files import read_state
from harr.params import Params

NEWEST = 300
"""So many runs are looked at."""
ROWS_BYTES = 16_000_000
TAGS = ("mlflow.parentRunId", "harr.execution", "harr.stage")


@dataclass(frozen=True)
class Run:
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


@dataclass(frozen=True)
class Store:
    """The newest runs, newest first, and the versions with an alias."""

    runs: tuple[Run, ...] = ()
    versions: tuple[Version, ...] = ()


def store_address(params: Params, environment: Mapping[str, str]) -> str:
    """Where runs go: tracking.uri, else MLFLOW_TRACKING_URI, else mlflow.db in this folder."""
    return params.tracking.uri or environment.get("MLFLOW_TRACKING_URI", "") or "sqlite:///mlflow.db"


def read_store(root: Path, address: str, params: Params) -> Store | None:
    """Runs and versions of a store; None for a kind of store that only MLflow itself can read.

    Raises:
        DamagedFile: the SQLite file is none, or of another MLflow.
        ServiceUnavailable: the server does not answer.
    """
    if address.startswith("sqlite:///"):
        path = root / address.removeprefix("sqlite:///")
        if not path.exists():
            return Store()
        try:
            with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=0.3)) as base:
                return _from_file(base, params)
        except sqlite3.Error as error:
            raise DamagedFile(f"{bare(address)} cannot be read ({error})") from None
    if urlsplit(address).scheme in ("http", "https"):
        return _from_server(address.rstrip("/"), params)
    return None


def _from_file(base: sqlite3.Connection, params: Params) -> Store:
    if not base.execute("SELECT 1 FROM sqlite_master WHERE name = 'runs'").fetchone():
        return Store()
    rows = base.execute(
        "SELECT run_uuid, runs.name, status, start_time, end_time FROM runs JOIN experiments USING (experiment_id) "
        "WHERE experiments.name = ? AND runs.lifecycle_stage = 'active' ORDER BY start_time DESC LIMIT ?",
        (params.tracking.experiment, NEWEST),
    ).fetchall()
    marks = ", ".join("?" * len(rows))
    tags = base.execute(
        f"SELECT run_uuid, key, value FROM tags WHERE key IN (?, ?, ?) AND run_uuid IN ({marks})",
        (*TAGS, *(row[0] for row in rows)),
    )
    by_run: dict[str, dict[str, str]] = {}
    for run, key, value in tags:
        by_run.setdefault(run, {})[key] = value
    runs = [_run(run, name, status, started, ended, by_run.get(run, {})) for run, name, status, started, ended in rows]
    named = base.execute(
        "SELECT alias, version, run_id, creation_time, source, "
        "(SELECT value FROM model_version_tags t WHERE t.name = v.name AND t.version = v.version AND key = 'index') "
        "FROM registered_model_aliases JOIN model_versions v USING (name, version) WHERE name = ? ORDER BY alias",
        (params.tracking.registered_model,),
    )
    versions = []
    for alias, number, run, created, source, index in named:
        version = Version(alias, str(number), run or "", index or "", (created or 0) / 1000)
        place = Path(source.removeprefix("file://").removesuffix("/retriever"), "evaluation/full.jsonl")
        text = place.read_bytes() if place.exists() and place.stat().st_size < ROWS_BYTES else b""
        versions.append(_measured(version, text.decode(), params.headline))
    return Store(tuple(runs), tuple(versions))


def _from_server(address: str, params: Params) -> Store:
    def get(path: str, body: Any = None, **query: str) -> Any:
        answer = ask(f"{address}/api/2.0/mlflow/{path}?{urlencode(query)}", body=body)
        if answer.status == 404:
            return None
        if answer.status != 200:
            raise ServiceUnavailable(f"MLflow at {bare(address)}: {answer.reason or answer.status}")
        return answer.value

    known = get("experiments/get-by-name", experiment_name=params.tracking.experiment)
    runs = []
    if known:
        wanted = {
            "experiment_ids": [known["experiment"]["experiment_id"]],
            "max_results": NEWEST,
            "order_by": ["attributes.start_time DESC"],
        }
        for run in get("runs/search", wanted).get("runs", ()):
            info, tags = run["info"], {tag["key"]: tag["value"] for tag in run["data"].get("tags", ())}
            runs.append(
                _run(
                    info["run_id"], info.get("run_name"), info["status"], info["start_time"], info.get("end_time"), tags
                )
            )
    name = params.tracking.registered_model
    model = get("registered-models/get", name=name)
    versions = []
    for told in model["registered_model"].get("aliases", ()) if model else ():
        found = get("model-versions/get", name=name, version=told["version"])["model_version"]
        tags = {tag["key"]: tag["value"] for tag in found.get("tags", ())}
        created = float(found.get("creation_timestamp", 0)) / 1000
        version = Version(told["alias"], told["version"], found.get("run_id", ""), tags.get("index", ""), created)
        rows = ask(f"{address}/get-artifact?{urlencode({'path': 'evaluation/full.jsonl', 'run_uuid': version.run})}")
        versions.append(_measured(version, rows.text, params.headline))
    return Store(tuple(runs), tuple(versions))


def _run(run: str, name: Any, status: str, started: Any, ended: Any, tags: Mapping[str, str]) -> Run:
    parent, execution, stage = (tags.get(tag, "") for tag in TAGS)
    return Run(run, name or "", status, float(started or 0) / 1000, float(ended or 0) / 1000, parent, execution, stage)


def _measured(version: Version, lines: str, headline: str) -> Version:
    """The version with the mean of the rows that promotion compares."""
    values = [json.loads(line).get(headline) for line in lines.split("\n") if line]
    kept = [float(value) for value in values if value is not None]
    return replace(version, figure=sum(kept) / len(kept), n=len(kept)) if kept else version


def lost_runs(store: Store, executions: set[str]) -> list[Run]:
    """Parent runs marked as running whose process is gone."""
    return [run for run in store.runs if run.status == "RUNNING" and run.execution and run.execution not in executions]


def check_runs(address: str, store: Store, executions: set[str]) -> list[Finding]:
    """Runs that nobody will ever end; on a server another machine may be at work on them."""
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


def check_registry(root: Path, store: Store, params: Params) -> list[Finding]:
    """The champion was trained for the index that is here."""
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
    told = ", ".join(f"{version.alias} {version.number}" for version in store.versions)
    return findings or [ok("registry", f"{name}: {told}" if told else f"{name}: no version yet")]
