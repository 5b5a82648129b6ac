"""Why a stage is stale: its inputs now, and when it ran."""

import configparser
import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from harr.io import digests
from harr.io.files import read_json
from harr.io.yaml_file import read_yaml
from tasks.inputs.stages import READS, at
from tasks.paths import INPUTS, LOCK, SETTINGS


def read_lock(root: Path) -> dict[str, Any]:
    """Return dvc.lock's entries of the stages; empty without such a file."""
    if not (root / LOCK).exists():
        return {}
    lock = read_yaml(root / LOCK, mend="run `dvc repro`")
    stages = lock.get("stages") if isinstance(lock, dict) else None
    return stages if isinstance(stages, dict) else {}


def find_hash(entry: Any, stage: str) -> str:
    """Return the MD5 of a stage's inputs in its ``entry`` of dvc.lock; "" if it has none."""
    deps = entry.get("deps", ()) if isinstance(entry, dict) else ()
    name = (INPUTS / f"{stage}.json").as_posix()
    return next((str(dep.get("md5", "")) for dep in deps if dep.get("path") == name), "")


def read_inputs(root: Path) -> dict[str, dict[str, Any]]:
    """Return the inputs that every stage ran with, as far as DVC's cache has them."""
    entries, cache, by_stage = read_lock(root), cache_folder(root), {}
    for stage in READS:
        if digest := find_hash(entries.get(stage), stage):
            for path in (root / INPUTS / f"{stage}.json", cache / "files/md5" / digest[:2] / digest[2:]):
                if path.is_file() and md5(path) == digest:
                    by_stage[stage] = read_json(path)
                    break
    return by_stage


def cache_folder(root: Path) -> Path:
    """Return the folder of a project's DVC cache."""
    config = configparser.ConfigParser(interpolation=None)  # a path may have a %
    config.read([root / ".dvc/config", root / ".dvc/config.local"])
    return root / ".dvc" / config.get("cache", "dir", fallback="cache")  # relative to .dvc, as for DVC


def md5(path: Path) -> str:
    """Return a file's MD5, as in dvc.lock."""
    return hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()


def explain_stale(now: Mapping[str, Mapping[str, Any]], root: Path) -> dict[str, list[str]]:
    """Return by stage why its inputs ``now`` differ from those it ran with."""
    values = read_yaml(root / SETTINGS, mend="restore it") if (root / SETTINGS).exists() else {}
    return {stage: lines for stage, was in read_inputs(root).items() if (lines := reasons(was, now[stage], values))}


def reasons(before: Mapping[str, Any], now: Mapping[str, Any], values: Any) -> list[str]:
    """Return the differences in a stage's inputs, one line each; ``values`` are those set in params.yaml.

    >>> one = {"parameters": {"train.steps": 3}, "code": {"harr/train/grpo.py": "0"}}
    >>> other = {"parameters": {"train.steps": 4}, "code": {"harr/train/grpo.py": "1"}}
    >>> reasons(one, other, {})
    ['train.steps: default 3 -> 4', 'harr/train/grpo.py changed']
    """
    lines = []
    for name, was, is_now in _changes(before, now, "parameters"):
        default = "" if at(values, name) is not None else "default "
        lines.append(f"{name}: {default}{_text_of(was)} -> {_text_of(is_now)}")
    for name, was, is_now in _changes(before, now, "code"):
        what = "is imported now" if was is None else "is imported no more" if is_now is None else "changed"
        lines.append(f"{name} {what}")
    lines += [
        f"{name} {was or 'none'} -> {is_now or 'none'}" for name, was, is_now in _changes(before, now, "packages")
    ]
    return lines + digests.changes(before.get("files", {}), now.get("files", {}))


def _changes(before: Mapping[str, Any], now: Mapping[str, Any], part: str) -> Iterator[tuple[str, Any, Any]]:
    old, new = before.get(part, {}), now.get(part, {})
    for name in dict.fromkeys([*old, *new]):
        if old.get(name) != new.get(name):
            yield name, old.get(name), new.get(name)


def _text_of(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."
