"""The stages as `dvc status` sees them: which would run again, and why."""

import json
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from harr.errors import HarrError, InUse, one_line
from harr.io.digests import look
from harr.io.files import read_state
from harr.io.yaml_file import read_yaml
from harr.params import Params
from tasks.inputs.differences import explain_stale, find_hash, read_lock
from tasks.inputs.stages import all_inputs
from tasks.paths import INPUTS, SETTINGS, STATE

SECONDS = 60
"""Time limit of DVC, which waits while another DVC runs, and hashes what changed."""
LOOK = "inputs"
"""The entry of dvc.yaml that always runs, and only writes what the others are compared by."""
MEND = "bring it back with git (`git checkout` it), or correct it by hand"


@dataclass(frozen=True)
class Stage:
    """A stage of dvc.yaml. Its state: fresh, changed, never run, running, or follows (a stage that will run)."""

    name: str
    state: str
    reasons: tuple[str, ...] = ()


def read_stages(root: Path) -> list[Stage]:
    """Return all stages in the order of dvc.yaml.

    DVC does not compare stages that touch what a running one writes; such a stage is running, or follows it.

    Raises:
        HarrError: the folder is not a DVC project, or DVC cannot read one of its files.
        InUse: another DVC is at work.
    """
    if not (root / ".dvc").is_dir():
        raise HarrError("this folder is no DVC project; dvc init")
    written = _written_paths(root)
    changes = {} if written else dvc_status(root)  # first: DVC reports what is wrong with its files
    declared = {name: item for name, item in (_mapping(root / "dvc.yaml").get("stages") or {}).items() if name != LOOK}
    outputs = {name: _paths(stage, "outs", "metrics", "plots") for name, stage in declared.items()}
    used = {name: _paths(stage, "deps") for name, stage in declared.items()}
    if written and (untouched := [name for name in declared if not written & (outputs[name] | used[name])]):
        changes = dvc_status(root, *untouched)
    lock = read_lock(root)
    inputs = stale_inputs(root, lock)
    stages: dict[str, Stage] = {}
    for name in declared:
        above = [item for item in stages if outputs[item] & used[name] and stages[item].state != "fresh"]
        if written & outputs[name]:
            stages[name] = Stage(name, "running")
        elif name not in lock:
            stages[name] = Stage(name, "never run")
        elif reasons := [*inputs.get(name, ()), *_reasons(changes.get(name, ()), name)]:
            stages[name] = Stage(name, "changed", tuple(reasons))
        else:
            stages[name] = Stage(name, "follows", (above[0],)) if above else Stage(name, "fresh")
    return list(stages.values())


def dvc_status(root: Path, *stages: str) -> dict[str, Any]:
    """Return what `dvc status --json` prints for these stages, or all: the changes of each that would run."""
    command = [sys.executable, "-m", "dvc", "--wait-for-lock", "status", "--json", *stages]
    try:
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise InUse(
            f"no answer in {SECONDS} s: DVC hashes, another command of DVC is at work, or this file system has no locks; "
            "ask later"
        ) from None
    lines = done.stderr.split("\n")
    if done.returncode and "is busy" in lines[0]:
        raise InUse("a stage has just begun, and DVC compares nothing in that moment; ask again")
    if done.returncode:
        message = one_line("\n".join(lines[-2:] if "Traceback" in done.stderr else lines), 300).removeprefix("ERROR: ")
        raise HarrError(f"dvc status: {message.partition(' Having any troubles?')[0]}; do what DVC says")
    changes: dict[str, Any] = json.loads(done.stdout)
    return changes


def stale_inputs(root: Path, lock: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return how the inputs of stages that ran differ now: parameters, code, packages and local files."""
    if not any(find_hash(entry, stage) for stage, entry in lock.items()):
        return {}
    params = Params.load(root / SETTINGS)
    files = look(params.download.model_dump(mode="json"), root, root / STATE / "files.json")
    return explain_stale(all_inputs(params, files), root)


def _reasons(changes: Iterable[Any], stage: str) -> Iterator[str]:
    """Yield what else changed: paths, with DVC's word for it unless that is "modified"."""
    inputs = (INPUTS / f"{stage}.json").as_posix()
    for change in changes:
        if isinstance(change, str):  # a changed command
            yield change
            continue
        for path, what in (entry for entries in change.values() for entry in entries.items()):
            if path != inputs:
                yield path if what == "modified" else f"{path} ({what})"


def _written_paths(root: Path) -> set[str]:
    """Return the paths that a running stage writes, from DVC's lock file.

    Raises:
        DamagedFile: a kill while DVC wrote the file left it empty; every later command of DVC fails on it.
    """
    path = root / ".dvc/tmp/rwlock"
    if not path.exists():
        return set()
    holders = read_state(path, f"{'rm -r' if path.is_dir() else 'rm'} .dvc/tmp/rwlock").get("write", {})
    here = root.resolve()
    alive = [Path(name) for name, holder in holders.items() if psutil.pid_exists(holder["pid"])]
    return {target.relative_to(here).as_posix() for target in alive if target.is_relative_to(here)}


def _mapping(path: Path) -> dict[str, Any]:
    values = read_yaml(path, mend=MEND) or {} if path.exists() else {}
    if not isinstance(values, dict):
        raise HarrError(f"{path.name}: a {type(values).__name__}, expected a mapping; {MEND}")
    return values


def _paths(stage: Mapping[str, Any], *kinds: str) -> set[str]:
    entries = [entry for kind in kinds for entry in stage.get(kind, ())]
    return {next(iter(entry)) if isinstance(entry, dict) else str(entry) for entry in entries}
