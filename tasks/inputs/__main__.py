"""What `dvc repro` does first: write data/inputs/<stage>.json, and say why a stage is stale; `python -m tasks.inputs`.

Where params.yaml, the code, the installed packages and the local files are as the last time, nothing else is loaded.
"""

import hashlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import harr
from harr.errors import HarrError, printable
from harr.io.digests import look
from harr.io.files import read_json, write_json
from tasks.paths import INPUTS, SETTINGS, STATE

MEMO, FILES = STATE / "inputs.json", STATE / "files.json"


def mark(elsewhere: Sequence[str] = ()) -> str:
    """Return a hash that differs where params.yaml, a file of the code or an installed package does.

    ``elsewhere`` are folders or files of further packages that params.yaml names.
    """
    digest = hashlib.sha256(sys.version.encode())
    digest.update(SETTINGS.read_bytes() if SETTINGS.exists() else b"")
    for folder in (Path(harr.__file__).parent, Path(__file__).parents[1], *map(Path, elsewhere)):
        for path in sorted(folder.rglob("*.*")) if folder.is_dir() else [folder]:
            if path.suffix != ".pyc":
                stat = path.stat()
                digest.update(f"{path} {stat.st_size} {stat.st_mtime_ns}\n".encode())
    for installed in sorted(path for path in sys.path if path.endswith("site-packages")):
        digest.update(f"{installed} {os.stat(installed).st_mtime_ns}\n".encode())
    return digest.hexdigest()


def is_remembered() -> bool:
    """Return whether nothing differs from the last time."""
    try:
        memo: dict[str, Any] = read_json(MEMO)
        stamp = mark(memo["elsewhere"])
        there = all((INPUTS / name).exists() for name in memo["written"])
        return memo["mark"] == stamp and there and look(memo["download"], Path(), FILES) == memo["files"]
    except (OSError, ValueError, LookupError, TypeError):
        return False


def main() -> None:
    """Write what has changed."""
    if is_remembered():
        return
    from harr.params import Params
    from tasks.inputs.code import places_of
    from tasks.inputs.differences import check_frozen, explain_stale
    from tasks.inputs.stages import all_inputs

    elsewhere = places_of(Params.load().model_dump())
    stamp = mark(elsewhere)
    params = Params.load()  # not before the mark, or a change in between would be taken for known
    section = params.download.model_dump(mode="json")
    files = look(section, Path(), FILES)
    now = all_inputs(params, files)
    check_frozen(now, Path())
    for stage, reasons in explain_stale(now, Path()).items():
        for reason in reasons:
            print(f"{stage} is stale: {reason}")
    for stage, inputs in now.items():
        path = INPUTS / f"{stage}.json"
        if not path.exists() or read_json(path) != inputs:
            write_json(path, inputs)
    written = [f"{stage}.json" for stage in now]
    write_json(MEMO, {"mark": stamp, "elsewhere": elsewhere, "download": section, "files": files, "written": written})


if __name__ == "__main__":
    try:
        main()
    except HarrError as error:
        sys.exit(f"error: {printable(str(error))}")
    except OSError as error:
        sys.exit(f"error: {error.filename or Path()}: {error.strerror}; nothing was run")
