"""The versions in MLflow's registry, and the model here."""

import contextlib
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any
from urllib.parse import quote

import httpx

from harr.errors import ServiceUnavailable, bare, one_line
from harr.evaluate.tables import level
from harr.io.files import digest_of, read_jsonl
from harr.params import Params
from harr.services.failures import connection_remedy
from harr.services.mlflow_store import client_of
from tasks.paths import trained_folder
from tasks.registry.gate import arm_of, rules_of
from tasks.tracking.errors import look_up, service

SECONDS = 2.0


@dataclass(frozen=True)
class Version:
    """A registered model version with an alias, and the mean of its deciding metric."""

    alias: str
    number: str
    run: str
    index: str
    created: float
    figure: str = ""
    model: str = ""
    """Hash of its files."""
    arm: str = ""


def read_versions(client: Any, params: Params) -> tuple[Version, ...]:
    """Return the versions of the registered model that have an alias; ``client`` is from :func:`open_registry`.

    Raises:
        ServiceUnavailable: the server does not answer, or the file is not an SQLite database.
    """
    if client is None:
        return ()
    name, versions = params.tracking.registered_model, []
    with service():
        model = look_up(client.get_registered_model, name)
        for alias, number in sorted(model.aliases.items()) if model else ():
            version = client.get_model_version(name, number)
            figure = _figure(client, version)
            index, created = version.tags.get("index", ""), version.creation_timestamp / 1000
            facts = alias, str(number), version.run_id or "", index, created, figure
            versions.append(Version(*facts, version.tags.get("model", ""), arm_of(version)))
    return tuple(versions)


def open_registry(root: Path, address: str) -> Any:
    """Return MLflow's client, read-only for a file; None without a file.

    Raises:
        ServiceUnavailable: the server does not answer, or the file is not an SQLite database.
    """
    if address.startswith("sqlite:///"):
        path = root / address.removeprefix("sqlite:///")
        if not path.exists() or not path.stat().st_size:
            return None
        address = f"sqlite:///file:{quote(str(path))}?mode=ro&uri=true"
    check_answer(address)  # MLflow's own client waits much longer
    with service():
        return client_of(address)


def check_answer(address: str, setting: str = "tracking.uri") -> None:
    """Check once that an MLflow server is healthy; a store in a file has none.

    Raises:
        ServiceUnavailable: it is unhealthy or does not answer within two seconds; names the ``setting`` to correct.
    """
    if not address.startswith("http"):
        return
    try:
        answer = httpx.get(f"{address.rstrip('/')}/health", timeout=SECONDS)
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        remedy = connection_remedy(str(error), address, setting)
        raise ServiceUnavailable(f"MLflow at {bare(address)} does not answer ({one_line(error)}); {remedy}") from None
    if not answer.is_success:
        raise ServiceUnavailable(
            f"MLflow at {bare(address)} answers {answer.status_code}; see its log, or correct {setting}"
        )


def _figure(client: Any, version: Any) -> str:
    """Return the mean of the deciding metric and the number of questions; "" if the rows cannot be read."""
    with contextlib.suppress(Exception), tempfile.TemporaryDirectory() as folder:
        file, metric = f"evaluation/{arm_of(version)}.jsonl", rules_of(version)["metric"]
        rows = read_jsonl(Path(client.download_artifacts(version.run_id, file, folder)))
        values = [float(row[metric]) for row in rows if row.get(metric) is not None]
        return f"{level(metric, fmean(values))} (n {len(values)})"
    return ""


def model_here(root: Path, params: Params) -> str:
    """Return the hash of the trained model's files here, as versions record it; empty without one."""
    here = root / trained_folder(params)[1]
    return digest_of(here) if here.exists() else ""
