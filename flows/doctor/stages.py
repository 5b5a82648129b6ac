"""The stages against dvc.lock: what is fresh, what changed, and what that was decided by.

Parameters and everything small is compared by content, as DVC does; a large output by its number of files and
its size only, which is said: such a stage *looks* fresh. `dvc status` has the last word.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flows.doctor.finding import Finding, ok, warn
from harr.errors import ParamsError
from harr.io.resume import differences
from harr.io.yaml_file import read_yaml

HASHED_BYTES = 8_000_000
"""So much of one dependency or output is read."""
TOTAL_BYTES = 64_000_000
MEND = "bring it back with git (`git checkout` it), or correct it by hand"
IGNORED = {".git", ".dvc", "__pycache__"}


@dataclass(frozen=True)
class Stage:
    """State of a stage: fresh, looks fresh, changed, follows (a changed one), or never run; and why."""

    name: str
    state: str
    reasons: tuple[str, ...] = ()


class Tree:
    """Answers whether a path is as dvc.lock says, each path once."""

    def __init__(self, root: Path) -> None:
        """Look at files under ``root``; what the line-by-line names of .dvcignore say is left out."""
        self._root = root
        self._known: dict[str, str] = {}
        self._read = 0
        lines = (root / ".dvcignore").read_text(encoding="utf-8").split() if (root / ".dvcignore").exists() else []
        self._ignored = IGNORED | {line.strip("/") for line in lines}

    def compare(self, entry: Mapping[str, Any]) -> str:
        """ "same", "alike" (by size only), "changed" or "missing" for an entry ``{path, md5, size, nfiles}``."""
        key = f"{entry['path']} {entry.get('md5')}"
        if key not in self._known:
            try:
                self._known[key] = self._compare(entry)
            except FileNotFoundError:  # a link to nowhere, or a stage that runs has just removed it
                self._known[key] = "changed"
        return self._known[key]

    def _compare(self, entry: Mapping[str, Any]) -> str:
        path = self._root / entry["path"]
        if not path.exists():
            return "missing"
        found = self._files(path) if path.is_dir() else [path]
        total = sum(file.stat().st_size for file in found)
        if total != entry.get("size", total) or len(found) != entry.get("nfiles", len(found)):
            return "changed"
        if total > HASHED_BYTES or self._read + total > TOTAL_BYTES:
            return "alike"
        self._read += total
        return "same" if _hash(path, found) == entry.get("md5") else "changed"

    def _files(self, folder: Path) -> list[Path]:
        found = []
        for where, folders, names in os.walk(folder):
            folders[:] = [name for name in folders if name not in self._ignored]
            found += [Path(where) / name for name in names if name not in self._ignored]
        return found


def _hash(path: Path, files: list[Path]) -> str:
    """DVC's hash: md5 of the file, or of the list of a folder's files with theirs."""
    if not path.is_dir():
        return hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()
    rows = [{"md5": _hash(file, []), "relpath": file.relative_to(path).as_posix()} for file in files]
    rows.sort(key=lambda row: tuple(row["relpath"].split("/")))
    text = json.dumps(rows, sort_keys=True)
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest() + ".dir"


def read_stages(root: Path) -> list[Stage]:
    """All stages in the order of dvc.yaml.

    Raises:
        ParamsError: dvc.yaml, dvc.lock or params.yaml is no YAML.
    """
    declared, locked = (_part(_yaml(root / name), "stages", name) for name in ("dvc.yaml", "dvc.lock"))
    params, tree = _yaml(root / "params.yaml"), Tree(root)
    found: dict[str, Stage] = {}
    makers: dict[str, str] = {}
    for name, stage in declared.items():
        found[name] = _state(name, stage, locked.get(name), params, tree)
        above = [makers[path] for path in map(_path, stage.get("deps", ())) if path in makers]
        stale = [one for one in dict.fromkeys(above) if not found[one].state.endswith("fresh")]
        if stale and found[name].state.endswith("fresh"):
            found[name] = Stage(name, "follows", (stale[0],))
        for kind in ("outs", "metrics", "plots"):
            makers |= {_path(out): name for out in stage.get(kind, ())}
    return list(found.values())


def _state(name: str, stage: Mapping[str, Any], lock: Mapping[str, Any] | None, params: Any, tree: Tree) -> Stage:
    if lock is None:
        return Stage(name, "never run")
    reasons = [] if lock.get("cmd") == stage["cmd"] else ["its command"]
    recorded = lock.get("params", {}).get("params.yaml", {})
    for key in stage.get("params", ()):
        reasons += [name for name, *_ in differences(key, recorded.get(key), _value(params, key))]
    listed = [entry for kind in ("deps", "outs") for entry in lock.get(kind, ())]
    if not all(isinstance(entry, dict) and "path" in entry for entry in listed):
        raise ParamsError(f"dvc.lock: an entry of stage {name} names no path; {MEND}")
    entries = {entry["path"]: entry for entry in listed}
    alike = False
    declared = [_path(one) for kind in ("deps", "outs", "metrics", "plots") for one in stage.get(kind, ())]
    for path in declared:
        verdict = tree.compare(entries[path]) if path in entries else "new"
        alike = alike or verdict == "alike"
        reasons += [] if verdict in ("same", "alike") else [path if verdict == "changed" else f"{path} ({verdict})"]
    if reasons:
        return Stage(name, "changed", tuple(reasons))
    return Stage(name, "looks fresh" if alike else "fresh")


def _value(values: Any, key: str) -> Any:
    for part in key.split("."):
        values = values.get(part) if isinstance(values, dict) else None
    return values


def _path(entry: Any) -> str:
    return next(iter(entry)) if isinstance(entry, dict) else str(entry)


def _yaml(path: Path) -> dict[str, Any]:
    values = read_yaml(path, mend=MEND) or {} if path.exists() else {}
    if not isinstance(values, dict):
        raise ParamsError(f"{path.name}: a {type(values).__name__}, expected a mapping; {MEND}")
    return values


def _part(values: Mapping[str, Any], key: str, file: str) -> dict[str, Any]:
    """The mapping of mappings under a key."""
    found = values.get(key) or {}
    if not isinstance(found, dict) or not all(isinstance(part, dict) for part in found.values()):
        raise ParamsError(f"{file}: {key} are no mapping of mappings; {MEND}")
    return found


def check_stages(root: Path) -> list[Finding]:
    """How many stages would run."""
    stages = read_stages(root)
    stale = [stage.name for stage in stages if not stage.state.endswith("fresh")]
    if any(stage.state == "changed" for stage in stages):
        return [warn("stages", f"not up to date: {', '.join(stale)}   (`harr status` says why)", "dvc repro")]
    return [ok("stages", f"to run: {', '.join(stale)}" if stale else f"all {len(stages)} up to date, as far as looked")]
