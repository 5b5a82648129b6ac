"""Where a stage keeps unfinished work: a folder per set of parameters, and a note of them next to it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tqdm import tqdm

from harr.errors import bare
from harr.io.files import fingerprint, read_json, write_json

NAMED, LONGEST = 5, 60
"""Number of differences that a line names, and of the characters of a value."""


def open_work(work: Path, run: Mapping[str, Any], **facts: Any) -> Path:
    """Return the folder of the run that ``run`` identifies, ``work/<fingerprint>``; and note its parameters next to it.

    Where the folder is new and there is unfinished work of other parameters, a line says which of them differ from
    those that were run last. ``facts`` are noted in place of hashes in ``run`` of the same name.
    The notes of published work are removed by :func:`harr.io.files.finish`, with the work. Of an address only what is
    no secret is noted.

    >>> import tempfile
    >>> work = Path(tempfile.mkdtemp()) / "train"
    >>> open_work(work, {"steps": 3}).mkdir()
    >>> open_work(work, {"steps": 3}).name == fingerprint({"steps": 3})
    True
    """
    folder = work / fingerprint(run)
    note = json.loads(json.dumps(_strip_passwords({**run, **facts}), default=str))
    if not folder.exists() and (last := _last_note(work)):
        changed = differences("", _read(last), note)
        changes = [f"{name}: {_shorten(before)}, now {_shorten(now)}" for name, before, now in changed[:NAMED]]
        changes += [f"{len(changed) - NAMED} more"] if len(changed) > NAMED else []
        tqdm.write(
            f"the unfinished work in {last.with_suffix('')} is of other parameters "
            f"({'; '.join(changes) or 'the password of an address'}); it is kept, this run starts from scratch"
        )
    write_json(folder.with_suffix(".json"), note)
    return folder


def differences(key: str, before: Any, now: Any) -> list[tuple[str, Any, Any]]:
    """Return what changed: the dotted name of a value below ``key``, what it was (None: nothing) and what it is.

    >>> differences("train", {"steps": 3, "seed": 0}, {"steps": 4, "seed": 0})
    [('train.steps', 3, 4)]
    """
    if isinstance(before, dict) and isinstance(now, dict):
        names = [name for name in {**before, **now} if before.get(name) != now.get(name)]
        below = [(f"{key}.{name}" if key else name, before.get(name), now.get(name)) for name in names]
        return [change for part in below for change in differences(*part)]
    return [] if before == now else [(key, before, now)]


def _last_note(work: Path) -> Path | None:
    """Return the note of the unfinished work that was begun or taken up last, or None."""
    notes = [note for note in work.glob("*.json") if note.with_suffix("").is_dir()]
    open_ = [note for note in notes if not note.with_suffix(".published").exists()]
    return max(open_, key=lambda note: note.stat().st_mtime_ns, default=None)


def _read(note: Path) -> Any:
    """Return what a note says; nothing of one that is damaged."""
    try:
        return read_json(note)
    except ValueError:
        return {}


def _strip_passwords(value: Any) -> Any:
    """Return a value in which no address holds a password."""
    if isinstance(value, Mapping):
        return {name: _strip_passwords(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_strip_passwords(part) for part in value]
    return bare(value) if isinstance(value, str) else value


def _shorten(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 4]} ..."
