"""The versions in MLflow's registry, and the model that is here."""

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
from tasks.paths import trained_folder
from tasks.registry.gate import arm_of, rules_of
from tasks.tracking.client import client_of
from tasks.tracking.errors import look_up, service

SECONDS = 2.0


@dataclass(frozen=True)
class Version:
    """A registered model version that an alias names, and the mean of the metric that decides."""

    alias: str
    number: str
    run: str
    index: str
    created: float
    figure: str = ""
    model: str = ""
    """The hash of its files."""
    arm: str = ""


def read_versions(client: Any, params: Params) -> tuple[Version, ...]:
    """Return the versions of the registered model that have an alias; ``client`` is of :func:`open_registry`.

    Raises:
        ServiceUnavailable: the server does not answer, or the SQLite file is none.
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
    """Return MLflow's client, of a file for reading only; None without a file.

    Raises:
        ServiceUnavailable: the server does not answer, or the SQLite file is none.
    """
    if address.startswith("sqlite:///"):
        path = root / address.removeprefix("sqlite:///")
        if not path.exists() or not path.stat().st_size:
            return None
        address = f"sqlite:///file:{quote(str(path))}?mode=ro&uri=true"
    check_answer(address)  # MLflow's own client waits much longer for a server that is away
    with service():
        return client_of(address)


def check_answer(address: str, setting: str = "tracking.uri") -> None:
    """Ask an MLflow server once whether it is well; a store in a file needs none.

    Raises:
        ServiceUnavailable: it does not answer within two seconds, or not well; names the ``setting`` to correct.
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
    """Return the mean of the metric that decides, over how many questions; "" where the rows cannot be had."""
    with contextlib.suppress(Exception), tempfile.TemporaryDirectory() as folder:
        file, metric = f"evaluation/{arm_of(version)}.jsonl", rules_of(version)["metric"]
        rows = read_jsonl(Path(client.download_artifacts(version.run_id, file, folder)))
        values = [float(row[metric]) for row in rows if row.get(metric) is not None]
        return f"{level(metric, fmean(values))} (n {len(values)})"
    return ""


def model_here(root: Path, params: Params) -> str:
    """Return the hash of the files of the trained model that is here, as a version notes it; empty without one."""
    here = root / trained_folder(params)[1]
    return digest_of(here) if here.exists() else ""
