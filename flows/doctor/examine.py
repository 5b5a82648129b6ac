"""All checks at once, side by side in threads; the findings come in a fixed order."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from flows.doctor import machine, servers
from flows.doctor.finding import DEADLINE_SECONDS, Finding, describe_failure, fail, ok, start_in_background, warn
from harr.errors import HarrError, ParamsError
from harr.params import Params
from harr.params.fields import Section
from tasks.tracking.client import address_of
from tasks.tracking.errors import setting_of


def examine(root: Path, environment: Mapping[str, str]) -> list[Finding]:
    """Run every check; one that cannot be made is a finding too.

    Raises:
        HarrError: ``root`` is not the project's folder.
    """
    if not (root / "dvc.yaml").exists():
        raise HarrError(f"no dvc.yaml in {root.resolve()}; run this in the folder of a harr project")
    checks: list[tuple[str, Callable[[], list[Finding]]]] = [
        ("versions", partial(machine.check_versions, root)),
        ("git", partial(machine.check_git, root)),
    ]
    try:
        params = servers.read_plugins(Params.load(root / "params.yaml"))
    except ParamsError as error:
        mend = "correct it, or copy one of recipes/*.yaml"
        findings = [fail("params.yaml", "; ".join(str(error).splitlines()), mend)]
    else:
        findings = [ok("params.yaml", "valid"), *_plugin_sections(params)]
        checks += [
            ("secrets", partial(servers.check_secrets, params, environment)),
            ("MLflow", partial(_check_mlflow, params, environment)),
        ]
        for server in servers.servers(params):
            for url in server.urls:
                checks.append((server.section, partial(servers.check_model_server, server, url, environment)))
        if params.index.uri:
            checks.append(("Milvus", partial(servers.check_milvus, params.index.uri)))
    for name, future in [(name, start_in_background(check)) for name, check in checks]:
        try:
            findings += future.result(DEADLINE_SECONDS)
        except Exception as error:
            findings.append(describe_failure(name, error))
    return findings


def _check_mlflow(params: Params, environment: Mapping[str, str]) -> list[Finding]:
    address = address_of(params, environment)
    return servers.check_mlflow(address, setting_of(address, environment))


def _plugin_sections(params: Params) -> list[Finding]:
    """Return the sections of plug-ins that no installed package reads."""
    mend = "correct its name, or install the package; `harr --help` has the commands of those that are installed"
    return [
        warn(f"plugins.{name}", "no installed package reads it", mend)
        for name, section in params.plugins.items()
        if not isinstance(section, Section)
    ]
