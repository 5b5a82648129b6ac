"""All checks at once, side by side in threads; the findings come in a fixed order."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from flows.doctor import machine, servers
from flows.doctor.finding import DEADLINE_SECONDS, Finding, describe_failure, fail, ok, start_in_background, warn
from flows.versions import check_champion
from harr.errors import HarrError, ParamsError
from harr.params import Params
from harr.params.fields import Section
from tasks.tracking.client import address_of
from tasks.tracking.errors import setting_of

Checks = list[tuple[str, Callable[[], list[Finding]]]]


def examine(root: Path, environment: Mapping[str, str]) -> list[Finding]:
    """Run every check; one that cannot be made is a finding too.

    Raises:
        HarrError: ``root`` is not the project's folder.
    """
    if not (root / "dvc.yaml").exists():
        raise HarrError(f"no dvc.yaml in {root.resolve()}; run this in the folder of a harr project")
    checks: Checks = [
        ("versions", partial(machine.check_versions, root)),
        ("git", partial(machine.check_git, root)),
        ("proxy", partial(servers.check_proxies, environment)),
        ("harr up", servers.check_started),
        ("Prefect", partial(servers.check_prefect, environment)),
    ]
    try:
        params = servers.read_plugins(Params.load(root / "params.yaml"))
        findings = [ok("params.yaml", "valid"), *_plugin_sections(params)]
        checks += _checks_of(params, root, environment)
    except ParamsError as error:
        findings = [
            fail("params.yaml", "; ".join(str(error).splitlines()), "correct it, or copy one of recipes/*.yaml")
        ]
    for name, future in [(name, start_in_background(check)) for name, check in checks]:
        try:
            findings += future.result(DEADLINE_SECONDS)
        except Exception as error:
            findings.append(describe_failure(name, error))
    return findings


def _plugin_sections(params: Params) -> list[Finding]:
    """Return whether an installed package reads each section of plug-ins."""
    mend = "correct its name, or install the package; `harr --help` has the commands of those that are installed"
    return [
        ok(f"plugins.{name}", "valid")
        if isinstance(section, Section)
        else warn(f"plugins.{name}", "no installed package reads it", mend)
        for name, section in params.plugins.items()
    ]


def _checks_of(params: Params, root: Path, environment: Mapping[str, str]) -> Checks:
    """Return the checks of what params.yaml names."""

    def look_at_mlflow() -> list[Finding]:
        address = address_of(params, environment)
        found = servers.check_mlflow(address, setting_of(address, environment))
        return [*found, *check_champion(root, address, params)]

    checks: Checks = [
        ("secrets", partial(servers.check_secrets, params, environment)),
        ("MLflow", look_at_mlflow),
    ]
    for server in servers.servers(params):
        for url in server.urls:
            parts = server.section, url, server.model, server.variable, environment
            checks.append((server.section, partial(servers.check_model_server, *parts)))
    if params.index.uri:
        checks.append(("Milvus", partial(servers.check_milvus, params.index.uri)))
    return checks
