"""What a stage reads stays as it is while it runs: DVC notes parameters and dependencies only when the stage has ended.

A stage works with the parameters that it read at its start. Where the file, or what dvc.yaml names as a dependency, is
another at the end, dvc.lock would certify a result with what was not used; so the stage fails. Between this look and
DVC's note a second or two pass; so the stage leaves with its figures the hash of the parameters that it ran with, and
nothing is built on a stage of which dvc.lock has others.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harr.errors import ParamsError, StaleState
from harr.io.files import SUMS, fingerprint, read_state, sha256, write_json
from harr.io.yaml_file import read_yaml
from harr.params import Params
from tasks.paths import METRICS
from tasks.sentences import SENTENCES

DVC, LOCK, SETTINGS = Path("dvc.yaml"), Path("dvc.lock"), Path("params.yaml")
RAN_WITH = "ran_with"
"""The figure of a stage that is the hash of its parameters, as params.yaml has them."""
Stamps = Mapping[str, str]


def declared() -> dict[str, Any]:
    """Return what dvc.yaml says of every stage; nothing where there is no such file."""
    return dict(read_yaml(DVC, mend="restore it")["stages"]) if DVC.exists() else {}


def described(stage: str) -> dict[str, Any]:
    """Return what dvc.yaml says of a stage; nothing where it is no stage of it."""
    return dict(declared().get(stage, {}))


def stamps(stage: str) -> dict[str, str]:
    """Return a mark of every dependency of a stage, which differs where the dependency does.

    Of a project that `harr init` made, the code is a file of hashes that stands among the parameters.
    """
    told = described(stage)
    files = [name for entry in told.get("params", []) if isinstance(entry, dict) for name in entry]
    return {name: _stamp(Path(name)) for name in [*told.get("deps", []), *files]}


def check_unchanged(stage: str, params: Params, before: Stamps) -> None:
    """Refuse to end a stage whose inputs are no more what it ran with; leave with its figures what it ran with.

    Args:
        stage: a stage of dvc.yaml; anything else has nothing to compare.
        params: those that it ran with.
        before: its :func:`stamps` when it began.

    Raises:
        ParamsError: a parameter that dvc.yaml names was changed, or params.yaml cannot be read any more.
        StaleState: a dependency was changed.
    """
    names = [name for name in described(stage).get("params", []) if isinstance(name, str)]
    ran = params.model_dump(mode="json")
    written = read_yaml(SETTINGS, mend="restore it") if names else {}  # before the look: what comes between fails it
    now = Params.load(SETTINGS).model_dump(mode="json") if names else {}
    for name in names:
        if changed := _difference(name, at(ran, name), at(now, name)):
            raise ParamsError(
                f"{SETTINGS} was changed while stage {stage} ran ({changed}), so DVC would note what was not used; put "
                "it back and run again, which goes on from what is finished, or run again with what is there now"
            )
    for name, mark in stamps(stage).items():
        if before.get(name, mark) != mark:
            raise StaleState(
                f"{name} was changed while stage {stage} ran, so DVC would note what was not used; put it back and "
                f"run again, or remove work/{stage} and run again with what is there now"
            )
    figures = METRICS / f"{stage}.json"
    if names and figures.exists() and stage != "evaluate":  # data/evaluation has the hash of these, and its parameters
        marked = {RAN_WITH: _marked({name: at(written, name) for name in names})}
        write_json(figures, read_state(figures, f"run `dvc repro -f -s {stage}`") | marked)


def locked(root: Path = Path()) -> dict[str, Any]:
    """Return what dvc.lock notes of every stage; nothing where it is no such file."""
    noted = read_yaml(root / LOCK, mend="run `dvc repro`")
    stages = noted.get("stages") if isinstance(noted, dict) else None
    return stages if isinstance(stages, dict) else {}


def check_noted(before: str) -> None:
    """Refuse to build on a stage of which DVC noted other parameters than it ran with.

    Args:
        before: only the stages before this one are looked at; all of them where it is none.

    Raises:
        ParamsError: names the first such stage.
    """
    stages = list(SENTENCES)
    wrong = set(noted_otherwise(Path()))
    for stage in stages[: stages.index(before)] if before in stages else stages:
        if stage in wrong:
            raise ParamsError(
                f"{LOCK} has other parameters of stage {stage} than it ran with ({SETTINGS} was changed as it ended, "
                f"or {LOCK} since); run `dvc repro -f -s {stage}`"
            )


def noted_otherwise(root: Path) -> list[str]:
    """Return the stages of which dvc.lock has other parameters than they ran with.

    What DVC restored from its cache is compared, too: the hash stands in a file that the stage made.
    """
    wrong = []
    for stage, entry in locked(root).items() if (root / LOCK).exists() else ():
        figures = root / METRICS / f"{stage}.json"
        if not figures.exists() or _md5(figures) not in [out.get("md5") for out in entry.get("outs", [])]:
            continue  # DVC has not noted these
        ran = read_state(figures, f"run `dvc repro -f -s {stage}`").get(RAN_WITH)
        if ran and ran != _marked(entry.get("params", {}).get(SETTINGS.name, {})):
            wrong.append(stage)
    return wrong


def check_settings(*, but: str = "") -> None:
    """Refuse to tell by params.yaml how a model was made where it is another since.

    Args:
        but: the stage that runs, which DVC notes only when it has ended.

    Raises:
        ParamsError: names the first parameter that dvc.lock has otherwise.
    """
    again = "run `dvc repro`"
    now, noted, stages = read_yaml(SETTINGS, mend=again), locked(), declared()
    for stage in (name for name in SENTENCES if name != but):
        if stage in stages and stage not in noted:
            raise ParamsError(f"{LOCK} does not tell with which parameters stage {stage} ran; {again}")
        for name, value in noted.get(stage, {}).get("params", {}).get(SETTINGS.name, {}).items():
            if name != "tracking.registered_model" and at(now, name) != value:
                raise ParamsError(
                    f"{name} in {SETTINGS} is not what stage {stage} ran with, so the model in models/ was not made "
                    f"by it; {again}, or restore {SETTINGS}"
                )


def at(values: Any, name: str) -> Any:
    """Return the value at a dotted name; None where there is none.

    >>> at({"train": {"steps": 3}}, "train.steps"), at({}, "train.steps")
    (3, None)
    """
    for key in name.split("."):
        values = values.get(key) if isinstance(values, dict) else None
    return values


def _difference(name: str, was: Any, now: Any) -> str:
    """Return the first value within two that differs, in words; "" where they are the same.

    >>> _difference("train", {"steps": 3, "lora": {"rank": 8}}, {"steps": 3, "lora": {"rank": 4}})
    'train.lora.rank: it ran with 8, now it is 4'
    """
    if was == now:
        return ""
    if isinstance(was, dict) and isinstance(now, dict):
        keys = [*was, *(key for key in now if key not in was)]
        return next(filter(None, (_difference(f"{name}.{key}", was.get(key), now.get(key)) for key in keys)))
    return f"{name}: it ran with {was!r}, now it is {now!r}"


def _marked(parameters: Mapping[str, Any]) -> str:
    """Return the hash of parameters by their dotted names, without those that are not given."""
    return fingerprint({name: value for name, value in parameters.items() if value is not None})


def _md5(path: Path) -> str:
    """Return what DVC notes of a file."""
    return hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()


def _stamp(path: Path) -> str:
    """Return the hash of a published folder's list of hashes; of other files that of names, sizes and times."""
    if (path / SUMS).exists():
        return sha256(path / SUMS)
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    told = []
    for file in files:
        if "__pycache__" not in file.parts and file.is_file():
            facts = file.stat()
            told.append(f"{file} {facts.st_size} {facts.st_mtime_ns}")
    return hashlib.sha256("\n".join(told).encode()).hexdigest()
