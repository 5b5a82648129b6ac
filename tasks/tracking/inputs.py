"""Checks that a stage's inputs do not change while it runs: DVC records their hashes only when the stage has ended.

The parameters are an input, too (data/inputs/<stage>.json, tasks/inputs), and a stage begins only with those in that
file. So dvc.lock certifies what was used, whatever happens to params.yaml.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harr.errors import ParamsError, StaleState
from harr.io.files import SUMS, read_state, sha256
from harr.io.yaml_file import read_yaml
from harr.params import Params
from tasks.inputs.differences import find_hash, md5, read_lock, reasons
from tasks.inputs.stages import READS, parameters
from tasks.paths import INPUTS, LOCK, SETTINGS

DVC = Path("dvc.yaml")
Stamps = Mapping[str, str]


def read_declared() -> dict[str, Any]:
    """Return the stages of dvc.yaml; empty without such a file."""
    return dict(read_yaml(DVC, mend="restore it")["stages"]) if DVC.exists() else {}


def stamps(stage: str) -> dict[str, str]:
    """Return a stamp of each dependency of a stage, which changes with the dependency."""
    return {name: _stamp(Path(name)) for name in read_declared().get(stage, {}).get("deps", [])}


def check_begun(stage: str, params: Params, before: Stamps) -> None:
    """Refuse to begin a stage with parameters other than those that DVC will record.

    Args:
        stage: a stage of dvc.yaml; anything else has nothing to compare.
        params: those that it begins with.
        before: its :func:`stamps`.

    Raises:
        StaleState: params.yaml was changed since data/inputs/<stage>.json was written.
    """
    if (INPUTS / f"{stage}.json").as_posix() not in before:
        return
    if changed := describe_change(stage, params, read_yaml(SETTINGS, mend="restore it")):
        raise StaleState(
            f"{SETTINGS} is not what {INPUTS}/{stage}.json says ({changed}); run `dvc repro`, or begin with "
            "`python -m tasks.inputs`"
        )


def describe_change(stage: str, params: Params, values: Any) -> str:
    """Return in words the first parameter of a stage that differs from its file of inputs; "" if none does.

    ``values`` are those set in params.yaml.
    """
    written = read_state(INPUTS / f"{stage}.json", "run `python -m tasks.inputs`", parameters=dict)
    now = {"parameters": dict(parameters(stage, params))}
    return next(iter(reasons({"parameters": written["parameters"]}, now, values)), "")


def check_unchanged(stage: str, before: Stamps) -> None:
    """Refuse to end a stage whose dependencies are no longer those that it ran with.

    Args:
        stage: a stage of dvc.yaml; anything else has nothing to compare.
        before: its :func:`stamps` when it began.

    Raises:
        StaleState: a dependency was changed.
    """
    for name, mark in stamps(stage).items():
        if before.get(name, mark) != mark:
            raise StaleState(
                f"{name} was changed while stage {stage} ran, so DVC would note what was not used; put it back and "
                f"run again, or remove work/{stage} and run again with what is there now"
            )


def check_settings(params: Params, *, but: str = "") -> None:
    """Refuse to describe a model by a params.yaml that changed since the model was made.

    Args:
        params: those of params.yaml.
        but: the running stage, which DVC records only when it has ended.

    Raises:
        ParamsError: names the first parameter that differs from what a stage ran with.
    """
    stages, entries, values = read_declared(), read_lock(Path()), read_yaml(SETTINGS, mend="restore it")
    for stage in (name for name in READS if name not in (but, "report") and name in stages):  # a report makes no model
        path, digest = INPUTS / f"{stage}.json", find_hash(entries.get(stage), stage)
        if not digest:
            raise ParamsError(f"{LOCK} does not name the parameters with which stage {stage} ran; run `dvc repro`")
        if not path.exists() or md5(path) != digest:
            raise ParamsError(f"stage {stage} did not run with what {path} says; run `dvc repro`")
        changed = describe_change(stage, params, values)
        if changed and not changed.startswith("tracking.registered_model"):
            raise ParamsError(
                f"{SETTINGS} is not what stage {stage} ran with ({changed}), so the model in models/ was not made by "
                f"it; run `dvc repro`, or restore {SETTINGS}"
            )


def _stamp(path: Path) -> str:
    """Return the hash of a published folder's list of hashes; for other files, of names, sizes and times."""
    if (path / SUMS).exists():
        return sha256(path / SUMS)
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    lines = []
    for file in files:
        if file.is_file():
            facts = file.stat()
            lines.append(f"{file} {facts.st_size} {facts.st_mtime_ns}")
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
