"""Download a version of the registry into a folder: `harr pull`."""

from pathlib import Path

from harr.errors import ParamsError
from harr.io.files import digest_of
from harr.services.model_registry import download, open_registry, resolve


def pull(uri: str, out: Path, project: Path = Path()) -> str:
    """Download the model folder of a version, compare every hash, and return what was done.

    Args:
        uri: ``models:/NAME@ALIAS`` or ``models:/NAME/NUMBER``.
        out: the folder, which appears complete. A model that harr wrote there is replaced; anything else is refused.
        project: the folder whose params.yaml, or whose mlflow.db, names the registry.

    Raises:
        ParamsError: the address is wrong, or ``out`` holds something else.
        ModelError, DamagedFile, ServiceUnavailable: as in :func:`harr.services.model_registry.download`.
    """
    if out.resolve() == Path.cwd():
        raise ParamsError(f"{out} is the folder that you are in, which cannot be replaced; name a new one")
    if out.exists() and not (out.is_dir() and (not any(out.iterdir()) or (out / "harr.json").exists())):
        raise ParamsError(f"{out} is there and holds no model of harr, so it stays as it is; name another folder")
    client = open_registry(project)
    version = resolve(client, uri)
    what = f"version {version.number} of {version.name}"
    if out.exists() and digest_of(out) == version.digest:
        return f"{out} is {what} already"
    download(client, version, out)
    files = [path for path in out.rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in files) / 1e6
    return f"pulled {what} to {out}: {len(files)} files, {size:,.0f} MB, each as it was registered"
