"""Where a stage keeps unfinished work: a folder per set of parameters, and a note of them next to it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harr.errors import bare
from harr.io.files import fingerprint, write_json


def open_work(work: Path, run: Mapping[str, Any], **facts: Any) -> Path:
    """Return the folder of the run that ``run`` identifies, ``work/<fingerprint>``; and note its parameters next to it.

    ``facts`` are noted in place of hashes in ``run`` of the same name; of an address only what is no secret is noted.
    Work of other parameters is kept. The notes of published work are removed by :func:`harr.io.files.finish`, with the
    work.

    >>> import tempfile
    >>> work = Path(tempfile.mkdtemp()) / "train"
    >>> open_work(work, {"steps": 3}).name == fingerprint({"steps": 3})
    True
    """
    folder = work / fingerprint(run)
    note = json.loads(json.dumps({**run, **facts}, default=str))
    write_json(folder.with_suffix(".json"), _strip_passwords(note))
    return folder


def _strip_passwords(value: Any) -> Any:
    """Return a value in which no address holds a password."""
    if isinstance(value, Mapping):
        return {name: _strip_passwords(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_strip_passwords(part) for part in value]
    return bare(value) if isinstance(value, str) else value
