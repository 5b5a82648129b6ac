"""All checks at once, side by side in threads; the findings come in a fixed order."""

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from flows.doctor import addresses, folders, machine, processes, runs, stages
from flows.doctor.finding import DEADLINE_SECONDS, Finding, broken, fail, in_background, ok
from harr.errors import HarrError, ParamsError, bare
from harr.params import Params

Checks = list[tuple[str, Callable[[], list[Finding]]]]


def examine(root: Path, environment: Mapping[str, str]) -> list[Finding]:
    """Run every check; one that cannot be made is a finding too.

    Raises:
        HarrError: ``root`` is not the project's folder.
    """
    if not (root / "dvc.yaml").exists():
        raise HarrError(f"no dvc.yaml in {root.resolve()}; run this in the folder of a harr project")
    ours = processes.scan(root)
    checks = _checks(root, environment, ours)
    try:
        params = machine.read_plugins(Params.load(root / "params.yaml"))
        findings = [ok("params.yaml", "valid")]
        checks += _checks_of(params, root, environment, ours)
    except ParamsError as error:
        findings = [
            fail("params.yaml", "; ".join(str(error).splitlines()), "correct it, or copy one of recipes/*.yaml")
        ]
    for name, future in [(name, in_background(check)) for name, check in checks]:
        try:
            findings += future.result(DEADLINE_SECONDS)
        except Exception as error:
            findings.append(broken(name, error))
    return findings


def _checks(root: Path, environment: Mapping[str, str], ours: tuple[processes.Process, ...]) -> Checks:
    """Return the checks that need no params.yaml."""
    return [
        ("versions", lambda: machine.check_versions(root)),
        ("git", lambda: machine.check_git(root)),
        ("stages", lambda: stages.check_stages(root)),
        ("index lock", lambda: processes.check_milvus_lock(ours, root)),
        ("reports", lambda: folders.check_reports(root, busy=bool(ours))),
        ("temporary files", lambda: folders.check_leftovers(root, busy=bool(ours))),
        ("Prefect", lambda: addresses.check_prefect(environment)),
    ]


def _checks_of(
    params: Params, root: Path, environment: Mapping[str, str], ours: tuple[processes.Process, ...]
) -> Checks:
    """Return the checks of what params.yaml names."""
    store = runs.store_address(params, environment)
    checks: Checks = [
        ("secrets", lambda: machine.check_secrets(params, environment)),
        ("disk", lambda: machine.check_disk(params, root, free=shutil.disk_usage(root).free)),
        ("index", lambda: folders.check_index(root, params)),
        ("MLflow store", lambda: folders.check_store(root, store, environment)),
        ("MLflow", lambda: _recorded(root, store, params, processes.live_executions(ours, root))),
    ]
    for server in machine.servers(params):
        for url in server.urls:
            words = (server.section, url, server.model, server.variable, environment)
            checks.append((server.section, lambda words=words: addresses.check_model_server(*words)))  # type: ignore[misc]
    if params.index.uri:
        checks.append(("Milvus", lambda: addresses.check_milvus(params.index.uri)))
    return checks


def _recorded(root: Path, address: str, params: Params, alive: set[str]) -> list[Finding]:
    """Return what the store says of runs and of the registry."""
    store = runs.read_store(root, address, params)
    answers = [ok("MLflow", f"answers at {bare(address)}")] if address.startswith("http") else []
    return [*answers, *runs.check_runs(address, store, alive), *runs.check_registry(root, store, params)]
