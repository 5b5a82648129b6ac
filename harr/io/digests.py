"""Hashes of the user's files that params.yaml names, which reveal changes in them.

DVC compares parameter values, which for a file is its name. The first entry of dvc.yaml (tasks/inputs) writes
the hashes, on which stage download depends.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from harr.io.files import is_fresh, read_json, sha256, stamp, write_json
from harr.io.folders import files_below


def find_paths(section: Mapping[str, Any]) -> Iterator[str]:
    """Yield the values of a section that may be paths: strings, lists of them, and those under ``settings``.

    >>> list(find_paths({"dataset": "jsonl", "passages": ["a.jsonl"], "train_where": {"split": "b"}, "seed": 0}))
    ['a.jsonl']
    """
    for name, value in section.items():
        if name == "settings" and isinstance(value, Mapping):
            yield from find_paths(value)
        elif isinstance(value, str) and name != "dataset":
            yield value
        elif isinstance(value, list | tuple):
            yield from (item for item in value if isinstance(item, str))


def look(section: Mapping[str, Any], root: Path, memo: Path) -> dict[str, str]:
    """Return the SHA-256 of every file that a section names, or that is in a folder it names, by path.

    Values that are neither a file nor a folder are left out, as are hidden files in folders. A file whose stamp equals
    that in ``memo`` is not read again.

    Args:
        section: a section of params.yaml, as plain values.
        root: the folder that relative paths begin at.
        memo: a JSON file, which is rewritten.
    """
    before, after = _read_memo(memo), dict[str, list[Any]]()
    digests = {}
    for name, path in _files(sorted(set(find_paths(section))), root):
        mark, place = stamp(path), str(path.absolute())
        cached = before.get(place)
        digests[name] = cached[-1] if cached and cached[:-1] == mark else sha256(path)
        if not is_fresh(path):
            after[place] = [*mark, digests[name]]
    if after != before:
        write_json(memo, after)
    return digests


def changes(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return the files that differ, marked if they are new or deleted.

    >>> changes({"a": "1", "b": "2"}, {"b": "3", "c": "4"})
    ['a (deleted)', 'b', 'c (new)']
    """
    names = sorted(name for name in {**before, **now} if before.get(name) != now.get(name))
    return [name + (" (deleted)" if name not in now else "" if name in before else " (new)") for name in names]


def _files(names: Iterable[str], root: Path) -> Iterator[tuple[str, Path]]:
    """Yield each file with its name: the path as in the section, and for a folder the paths below it."""
    for name in names:
        try:
            if (path := root / name).is_file():
                yield name, path
            for file in files_below(path) if name and path.is_dir() else ():
                if file.is_file():
                    yield (Path(name) / file.relative_to(path)).as_posix(), file
        except OSError:  # not a valid file name; the stage reports unreadable files
            continue


def _read_memo(memo: Path) -> dict[str, list[Any]]:
    try:
        digests = read_json(memo)
        return digests if isinstance(digests, dict) else {}
    except (OSError, json.JSONDecodeError, UnicodeDecodeError):
        return {}
