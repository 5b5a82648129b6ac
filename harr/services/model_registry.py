"""MLflow's model registry for users of a model: resolve a name and alias to a version, and get its folder.

MLflow is imported when a registry is opened.
"""

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from harr.errors import DamagedFile, HarrError, ModelError, ParamsError, ServiceUnavailable, bare, one_line
from harr.io.files import digest_of, publish
from harr.io.model_folder import check_publishable
from harr.params import Params
from harr.services.mlflow_store import STORE, client_of, lock_folder

SCHEME = "models:/"
CHAMPION = "champion"
"""The alias that promotion moves."""
URI = re.compile(rf"{SCHEME}(?P<name>[^/@:\s.][^/@:]*)(@(?P<alias>[^/@:\s]+)|/(?P<number>\d+))")
CACHE = ".harr/registry"
"""The project folder that versions are downloaded to."""
DIGEST = re.compile(r"[0-9a-f]{64}")
LOADABLE = "model.sentence_transformer"
"""Where MLflow's flavour ``sentence_transformers`` looks for the model folder in a registered model."""
MLFLOW_NOTE = "registered_model_meta"
"""File that MLflow writes into a registered model when it loads it from a local store."""
ABSENT = ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE")
"""MLflow's error codes for a missing model, alias or version."""


@dataclass(frozen=True, slots=True)
class RegisteredVersion:
    """A version in the registry: ``digest`` is the hash of its model folder, which ``run`` keeps as ``kind``."""

    name: str
    number: str
    digest: str
    run: str
    kind: str

    @property
    def uri(self) -> str:
        """Return the address of this version, which no alias moves."""
        return f"{SCHEME}{self.name}/{self.number}"


def is_registered(name: str | Path) -> bool:
    """Return whether a name is that of a registered model, not of a folder.

    >>> is_registered("models:/harr-retriever@champion"), is_registered("models/retriever")
    (True, False)
    """
    return str(name).startswith(SCHEME)


def registry_address(project: Path) -> str:
    """Return a project's registry: tracking.uri in its params.yaml, MLFLOW_TRACKING_URI, or its mlflow.db.

    Raises:
        ModelError: none of them exists.
    """
    settings, database = project / "params.yaml", project / "mlflow.db"
    address = (Params.load(settings).tracking.uri if settings.exists() else "") or os.environ.get("MLFLOW_TRACKING_URI")
    if not address and not database.exists():
        raise ModelError(
            f"no MLflow registry is known in {project.resolve()}; set MLFLOW_TRACKING_URI, or run this in the folder "
            "of a harr project"
        )
    return address or f"sqlite:///{database.resolve()}"


def local_folder(uri: str, project: Path) -> Path:
    """Return a registered model's folder, fetched from a project's registry into its .harr/registry.

    Raises:
        ParamsError, ModelError, DamagedFile, ServiceUnavailable: as :func:`resolve` and :func:`download`.
    """
    client = open_registry(project)
    return fetch(client, resolve(client, uri), project / CACHE)


def open_registry(project: Path) -> Any:
    """Return a client for a project's registry (:func:`registry_address`).

    Raises:
        ModelError: there is none. ParamsError: MLflow is not installed, or has no store for such an address.
        ServiceUnavailable: the registry cannot be opened: it is damaged, or of another version of MLflow.
    """
    address = registry_address(project)
    if find_spec("mlflow") is None:
        raise ParamsError(
            "a model of the registry needs MLflow (`pip install mlflow`); or name a folder that `harr pull` filled"
        )
    if not STORE.match(address):
        raise ParamsError(f"{bare(address)} is no address of an MLflow registry; expected http://... or sqlite:///...")
    with _explain_errors(bare(address)):
        return client_of(address, project)


def resolve(client: Any, uri: str) -> RegisteredVersion:
    """Resolve ``models:/NAME@ALIAS`` or ``models:/NAME/NUMBER`` to the current version, in one request.

    Raises:
        ParamsError: the address has another form.
        ModelError: the registry has no such version, or harr did not register it.
        ServiceUnavailable: the registry does not answer.
    """
    match = URI.fullmatch(uri)
    if match is None:
        raise ParamsError(f"{uri!r} names no registered model; expected models:/NAME@ALIAS or models:/NAME/NUMBER")
    name, alias, number = match["name"], match["alias"], match["number"]
    with _explain_errors(uri):
        look_up = client.get_model_version_by_alias if alias else client.get_model_version
        version = look_up(name, alias or number)
    if not (version.run_id and DIGEST.fullmatch(version.tags.get("model", "")) and "kind" in version.tags):
        raise ModelError(
            f"version {version.version} of {name} was not registered by harr (no run, or no tag model or kind), so its "
            "files cannot be checked; load it with MLflow, or run `harr record --register`"
        )
    return RegisteredVersion(name, str(version.version), version.tags["model"], version.run_id, version.tags["kind"])


def fetch(client: Any, version: RegisteredVersion, cache: Path) -> Path:
    """Return a version's model folder in ``cache``, downloaded and checked unless it is there intact.

    Raises:
        DamagedFile, ModelError, ServiceUnavailable: as :func:`download`.
    """
    out = cache / f"{version.name}-{version.number}-{version.digest[:16]}"
    cache.mkdir(parents=True, exist_ok=True)
    with lock_folder(cache):  # several processes may load the same version
        if not (out.is_dir() and digest_of(out) == version.digest):
            download(client, version, out)
    return out


def download(client: Any, version: RegisteredVersion, out: Path) -> None:
    """Download a version's model folder, check its hash, and publish it atomically as ``out``.

    It is byte for byte the folder that stage merge wrote.

    Raises:
        DamagedFile: a file is missing or not the registered one; ``out`` does not change.
        ModelError: the folder has files that harr's models do not have.
        ServiceUnavailable: the registry or its artifact store does not provide the files.
    """
    work = out.with_name(f".{out.name}.{os.getpid()}.tmp")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    try:
        with _explain_errors(version.uri):
            paths = {file.path for file in client.list_artifacts(version.run, version.kind)}
            place = f"{version.kind}/{LOADABLE}"
            path = place if place in paths else version.kind
            folder = copy_artifacts(client, version.run, path, work)
        (folder / MLFLOW_NOTE).unlink(missing_ok=True)
        check_publishable(folder)
        if digest_of(folder) != version.digest:
            raise DamagedFile(
                f"{version.uri} is damaged in MLflow's artifact store (its files are not what was registered); "
                "restore it there, or run `dvc repro` and `harr record --register` where the model was trained"
            )
        publish(folder, out)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def copy_artifacts(client: Any, run: str, path: str, place: Path) -> Path:
    """Copy a run's artifacts under ``path`` to ``place``; return the copy's path.

    Raises:
        ServiceUnavailable: there are none; MLflow does not give the reason.
    """
    try:
        return Path(client.download_artifacts(run, path, str(place)))
    except Exception as error:
        if getattr(error, "error_code", "") not in ABSENT:
            raise
        raise ServiceUnavailable(
            f"MLflow does not copy {path} of run {run} to {place} and does not say why; look for a file that its "
            "artifact store has lost, and for room on the disk here"
        ) from None


@contextmanager
def _explain_errors(uri: str) -> Iterator[None]:
    """Turn errors of MLflow's client and of its artifact store's client into ours."""
    try:
        yield
    except HarrError:
        raise
    except Exception as error:
        if getattr(error, "error_code", "") in ABSENT:
            raise ModelError(
                f"the registry has no {uri} ({one_line(error, 200)}); `harr record --register` makes a version with "
                "the alias candidate, `harr promote` gives it the alias champion"
            ) from None
        raise ServiceUnavailable(f"MLflow does not give {uri}: {one_line(error, 300)}") from None
