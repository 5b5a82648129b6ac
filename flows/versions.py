"""The versions in MLflow's registry, and the model that is here."""

import contextlib
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from flows.doctor.finding import Finding, ok, warn
from flows.doctor.servers import check_mlflow
from harr.errors import HarrError
from harr.io.files import digest_of, read_jsonl
from harr.params import Params
from tasks.paths import trained_folder
from tasks.registry.gate import arm_of
from tasks.registry.history import describe_alias
from tasks.tracking.client import client_of
from tasks.tracking.errors import look_up, service


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
    arm: str = ""


def read_versions(client: Any, params: Params) -> tuple[Version, ...]:
    """Return the versions of the registered model that have an alias; ``client`` is of :func:`open_registry`.

    Raises:
        DamagedFile: the SQLite file is none.
        ServiceUnavailable: the server does not answer.
    """
    if client is None:
        return ()
    with service():
        return _versions(client, params)


def read_manual_move(client: Any, params: Params) -> str:
    """Return how somebody moved the alias champion past the gate, "" where nobody did; otherwise as
    :func:`read_versions`."""
    if client is None:
        return ""
    with service():
        return describe_alias(client, params.tracking.registered_model)


def check_champion(root: Path, address: str, params: Params) -> list[Finding]:
    """Look whether the gate let the champion through; nothing where MLflow does not answer, which is another finding."""
    try:
        moved, _, mend = read_manual_move(open_registry(root, address), params).partition("; ")
    except HarrError:
        return []
    return [warn("champion", moved, mend)] if moved else [ok("champion", "as promotions left it")]


def open_registry(root: Path, address: str) -> Any:
    """Return MLflow's client, of a file for reading only; None without a file.

    Raises:
        DamagedFile: the SQLite file is none.
        ServiceUnavailable: the server does not answer.
    """
    if address.startswith("sqlite:///"):
        path = root / address.removeprefix("sqlite:///")
        if not path.exists() or not path.stat().st_size:
            return None
        address = f"sqlite:///file:{quote(str(path))}?mode=ro&uri=true"
    check_mlflow(address)  # MLflow's own client waits much longer for a server that is away
    with service():
        return client_of(address)


def _versions(client: Any, params: Params) -> tuple[Version, ...]:
    name = params.tracking.registered_model
    model, versions = look_up(client.get_registered_model, name), []
    for alias, number in sorted(model.aliases.items()) if model else ():
        version = client.get_model_version(name, number)
        arm = arm_of(version)
        figures = _figures(client, version.run_id or "", arm, params.headline)
        figure = sum(figures) / len(figures) if figures else None
        index, created = version.tags.get("index", ""), version.creation_timestamp / 1000
        facts = alias, str(number), version.run_id or "", index, created, figure, len(figures)
        versions.append(Version(*facts, version.tags.get("model", ""), arm))
    return tuple(versions)


def _figures(client: Any, run: str, arm: str, headline: str) -> list[float]:
    """Return the figures that promotion compares, one a question; none where the rows cannot be had."""
    with contextlib.suppress(Exception), tempfile.TemporaryDirectory() as folder:
        rows = read_jsonl(Path(client.download_artifacts(run, f"evaluation/{arm}.jsonl", folder)))
        return [float(row[headline]) for row in rows if row.get(headline) is not None]
    return []


def model_here(root: Path, params: Params) -> str:
    """Return the hash of the files of the trained model that is here, as a version notes it; empty without one."""
    here = root / trained_folder(params)[1]
    return digest_of(here) if here.exists() else ""
