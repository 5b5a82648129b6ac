"""All checks at once: those of this machine one after the other, those of servers meanwhile in threads."""

import os
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from flows.doctor import addresses, folders, machine, processes, runs, stages
from flows.doctor.finding import Finding, broken, fail, found_by, ok, warn
from harr.errors import HarrError, ParamsError
from harr.params import Params

SERVES = {4200: "prefect", 5000: "mlflow"}
"""Ports of `make ui`, and whose they should be."""
DEADLINE_SECONDS = 0.8
"""So long servers may take, all together; looking up a name can take longer than one request may."""
Check = Callable[[], list[Finding]]


def examine(root: Path, environment: Mapping[str, str]) -> list[Finding]:
    """Run every check; the findings come in a fixed order.

    Raises:
        HarrError: ``root`` is not the project's folder.
    """
    if not (root / "dvc.yaml").exists():
        raise HarrError(f"no dvc.yaml in {root.resolve()}; run this in the folder of a harr project")
    try:
        params = Params.load(root / "params.yaml")
        read = ok("params.yaml", "valid")
    except ParamsError as error:
        params = None
        read = fail("params.yaml", "; ".join(str(error).splitlines()), "correct it, or copy one of recipes/*.yaml")
    asked = [Asked("Prefect", lambda: addresses.check_prefect(root, environment))]
    asked += _servers(params, root, environment) if params else []
    findings = [read]
    for name, check in _local(root, params, environment):
        findings += found_by(name, check)
    deadline = time.monotonic() + DEADLINE_SECONDS
    for one in asked:
        findings += one.findings(max(0.0, deadline - time.monotonic()))
    return findings


class Asked:
    """A check of a server that runs in a thread of its own, which never keeps the process from ending."""

    def __init__(self, name: str, check: Check) -> None:
        """Start it."""
        self._name, self._check = name, check
        self._found: list[Finding] | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._found = self._check()
        except HarrError as error:
            self._found = [fail(self._name, str(error), "start it, or correct its address")]
        except Exception as error:
            self._found = [broken(self._name, error)]

    def findings(self, seconds: float) -> list[Finding]:
        """What it found, or that it took too long."""
        self._thread.join(seconds)
        late = warn(self._name, "no answer in time (a name that is looked up slowly?)", "check its address")
        return [late] if self._found is None else self._found


def _local(root: Path, params: Params | None, environment: Mapping[str, str]) -> list[tuple[str, Check]]:
    table = processes.scan(root)
    cores, load = machine.allowed_cores(), os.getloadavg()[0]
    checks: list[tuple[str, Check]] = [
        ("versions", lambda: machine.check_versions(root)),
        ("switches", lambda: machine.check_switches(root, environment)),
        ("threads", lambda: machine.check_threads(environment, allowed=cores, load=load)),
        ("git", lambda: machine.check_git(root)),
        ("dvc", lambda: folders.check_dvc_lock(root)),
        ("stages", lambda: stages.check_stages(root)),
        ("processes", lambda: processes.check_orphans(table, root)),
        ("index lock", lambda: processes.check_milvus_lock(root, table)),
        ("reports", lambda: folders.check_reports(root, busy=bool(table.ours))),
        ("temporary files", lambda: folders.check_leftovers(root, busy=bool(table.ours))),
    ]
    if params is None:
        return checks
    known = params
    store = runs.store_address(known, environment)
    return [
        *checks,
        ("secrets", lambda: machine.check_secrets(known, environment)),
        ("disk", lambda: machine.check_disk(known, root, free=shutil.disk_usage(root).free)),
        ("index", lambda: folders.check_index(root, known)),
        ("MLflow store", lambda: folders.check_store(root, store, environment)),
        ("MLflow", lambda: [] if store.startswith("http") else _recorded(root, store, known, table)),
        ("ports", lambda: _ports(root, known, environment, store)),
    ]


def _ports(root: Path, params: Params, environment: Mapping[str, str], store: str) -> list[Finding]:
    known = addresses.known_ports(root, params, environment, store)
    return processes.check_ports(processes.listeners(), SERVES, known)


def _servers(params: Params, root: Path, environment: Mapping[str, str]) -> list[Asked]:
    """A thread per server that params.yaml names."""
    asked = []
    for section, client in machine.model_servers(params):
        words = (section, client.base_url, client.model, client.key_variable, environment)
        asked.append(Asked(section, lambda words=words: addresses.check_model_server(*words)))  # type: ignore[misc]
    if params.encoder.base_url:
        encoder = params.encoder
        words = ("encoder", encoder.base_url, encoder.model, encoder.key_variable, environment)
        asked.append(Asked("encoder", lambda words=words: addresses.check_model_server(*words)))  # type: ignore[misc]
    if params.index.uri:
        asked.append(Asked("Milvus", lambda: addresses.check_milvus(params.index.uri)))
    store = runs.store_address(params, environment)
    if store.startswith("http"):
        asked.append(Asked("MLflow", lambda: _served(root, store, params)))
    return asked


def _served(root: Path, address: str, params: Params) -> list[Finding]:
    """A tracking server, and what it says."""
    found = addresses.check_mlflow(address)
    return found if found[0].level == "fail" else found + _recorded(root, address, params, None)


def _recorded(root: Path, address: str, params: Params, table: processes.Table | None) -> list[Finding]:
    """What the store says of runs and of the registry."""
    store = runs.read_store(root, address, params)
    if store is None:
        return []
    alive = processes.live_executions(table, root) if table else set()
    return [*runs.check_runs(address, store, alive), *runs.check_registry(root, store, params)]
