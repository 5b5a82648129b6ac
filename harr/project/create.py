"""`harr init`: a folder gets the files of a project, which the wheel carries; in the repository they are its own."""

import hashlib
import io
import json
import shutil
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

import harr
from harr.errors import ParamsError
from harr.io.files import write_text

SETTINGS = (".dvc/config", ".dvcignore", ".gitignore", "params.yaml", "prefect.yaml")
"""What a person edits; an update leaves it alone."""
CODE = ("constraints.txt", "dvc.yaml", "flows", "params.schema.json", "recipes", "tasks")
"""What belongs to a version of harr."""
PACKED = Path(__file__).with_name("files")
"""Where the wheel has both (pyproject.toml, `force-include`)."""
VERSIONS = "code.json"
"""The project's note of which version its code is of, and of the hash of every package that a stage depends on."""
LIBRARY = "harr/"


def create_project(folder: Path, *, update: bool = False) -> str:
    """Make a project in ``folder``, or with ``update`` give one the code of the installed version.

    An update replaces flows, tasks and dvc.yaml, and adds recipes; settings and results stay.

    Returns:
        What to do next.

    Raises:
        ParamsError: the folder holds a file of a project already, or with ``update`` holds none.
    """
    root = PACKED if PACKED.exists() else Path(__file__).parents[2]
    there = [name for name in (*SETTINGS, *CODE) if (folder / name).exists()]
    if there and not update:
        raise ParamsError(
            f"{folder} holds {there[0]} already; name a new folder, or `harr init --update {folder}` for a project of "
            "an older version"
        )
    if update and not (folder / VERSIONS).exists():
        raise ParamsError(f"{folder} is no project that harr init made (no {VERSIONS}); run `harr init {folder}`")
    for name in CODE + tuple(name for name in SETTINGS if name not in there):
        _copy(root / name, folder / name)
    _refer_to_versions(folder / "dvc.yaml", folder / VERSIONS)
    if not any((place / ".git").exists() for place in (folder.resolve(), *folder.resolve().parents)):
        write_text(folder / ".dvc/config.local", "[core]\n    no_scm = true\n")
    if update:
        return f"{folder} has the code of harr {harr.__version__}; params.yaml, prefect.yaml and results are as before"
    return (
        f"made a project in {folder.resolve()}\n"
        f"  cd {folder}\n"
        "  pip install --constraint constraints.txt 'harr[pipeline]'\n"
        "  harr run --recipe smoke    # two minutes: is everything wired?\n"
        "  harr run                   # params.yaml, as it stands"
    )


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if not source.is_dir():
        shutil.copyfile(source, target)
        return
    if target.exists() and target.name != "recipes":  # whose own files stay
        shutil.rmtree(target)
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)


def _refer_to_versions(stages: Path, versions: Path) -> None:
    """Have stages depend on hashes in place of code that lies elsewhere, and write these."""
    round_trip = YAML()
    round_trip.width = 200
    listed: Any = round_trip.load(stages.read_text(encoding="utf-8"))
    used: set[str] = set()
    for stage in listed["stages"].values():
        code = [path for path in stage["deps"] if path.startswith(LIBRARY)]
        for path in code:
            stage["deps"].remove(path)
        if not stage["deps"]:
            del stage["deps"]
        if code:
            stage["params"].append({VERSIONS: [_key(path) for path in code]})
        used.update(code)
    with io.StringIO() as text:
        round_trip.dump(listed, text)
        write_text(stages, text.getvalue())
    hashes = {_key(path): _hash(Path(harr.__file__).parent / path.removeprefix(LIBRARY)) for path in sorted(used)}
    write_text(versions, json.dumps({"harr": harr.__version__, **hashes}, indent=2) + "\n")


def _key(path: str) -> str:
    """Return a code dependency as DVC takes a parameter's name, in which a dot would lead into a mapping.

    >>> _key("harr/corpus"), _key("harr/rag/rollout.py")
    ('corpus', 'rag/rollout')
    """
    return path.removeprefix(LIBRARY).removesuffix(".py")


def _hash(path: Path) -> str:
    """Return the hash of a module, or of all files of a package."""
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    found = hashlib.sha256()
    for file in files:
        if file.is_file() and "__pycache__" not in file.parts:
            found.update(f"{file.relative_to(path.parent)}\n".encode() + hashlib.sha256(file.read_bytes()).digest())
    return found.hexdigest()[:16]
