"""State of the project: its stages, its models, and what is unfinished or not reported yet."""

import os
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flows import stages
from flows.finding import DEADLINE_SECONDS, describe_failure
from flows.versions import Version, model_here, open_registry, read_versions
from harr.errors import HarrError, bare
from harr.io.files import read_state
from harr.params import Params
from tasks.paths import METRICS, NOTES, RUNS, SINCE, trained_folder
from tasks.tracking.client import address_of


@dataclass(frozen=True)
class StageStatus:
    """A stage, why it is not fresh, and when it last completed (seconds since 1970; 0 if never)."""

    name: str
    state: str
    reasons: tuple[str, ...]
    ended: float


@dataclass(frozen=True)
class Status:
    """What `harr status` shows; ``trouble`` says in a line what could not be read.

    ``stray`` says in a line that the model in models/ is none of ``versions``; empty if it is one.
    """

    stages: tuple[StageStatus, ...]
    model: str
    versions: tuple[Version, ...]
    stray: str
    unfinished: tuple[str, ...]
    training: str = ""
    trouble: str = ""


def status(root: Path, environment: Mapping[str, str]) -> Status:
    """Return the project's state; what cannot be read is left out and named in ``trouble``.

    Raises:
        HarrError: ``root`` is not the project's folder, or params.yaml is wrong.
    """
    if not (root / "dvc.yaml").exists():
        raise HarrError(f"no dvc.yaml in {root.resolve()}; run this in the folder of a harr project")
    params = Params.load(root / "params.yaml")

    pool = ThreadPoolExecutor()
    begun: dict[str, Future[Any]] = {
        "stages": pool.submit(lambda: stages.read_stages(root)),
        "training": pool.submit(lambda: _since_training(root, params.index.retrain_after)),
        "MLflow": pool.submit(lambda: read_versions(open_registry(root, address_of(params, environment)), params)),
        "model": pool.submit(lambda: model_here(root, params)),
        "unfinished": pool.submit(lambda: (*list_unfinished(root), *list_unsent(root))),
    }
    read: dict[str, Any] = {"stages": (), "training": "", "MLflow": (), "model": "", "unfinished": ()}
    trouble = []
    for name, future in begun.items():
        try:
            read[name] = future.result(DEADLINE_SECONDS)
        except Exception as error:
            trouble.append(f"{name}: {describe_failure(error)}")
    return Status(
        stages=tuple(_stage(stage, root) for stage in read["stages"]),
        model=params.tracking.registered_model,
        versions=read["MLflow"],
        stray=_describe_stray(read["MLflow"], read["model"], trained_folder(params)[1]),
        unfinished=read["unfinished"],
        training=read["training"],
        trouble=" | ".join(trouble),
    )


def _since_training(root: Path, limit: float) -> str:
    """Return how much of the corpus changed since it was trained on, by stage index; empty without its figures.

    Raises:
        DamagedFile: metrics/index.json is damaged.
    """
    path = root / METRICS / "index.json"
    figures = read_state(path, "run `dvc repro -f -s index`") if path.exists() else {}
    if f"{SINCE}_passages" not in figures:
        return ""
    changes = [f"{int(figures.get(f'{SINCE}_{name}', 0)):,} {name}" for name in ("added", "removed", "changed")]
    passages, share = int(figures[f"{SINCE}_passages"]), 100 * figures.get(f"{SINCE}_share", 0.0)
    return (
        f"{', '.join(changes)} of {passages:,} passages since training ({share:.1f} %); trained again above "
        f"{100 * limit:g} % (index.retrain_after), or by `harr run --again`"
    )


def _stage(stage: stages.Stage, root: Path) -> StageStatus:
    """Return the stage with the time of its metrics file."""
    metrics = root / METRICS / f"{stage.name}.json"
    ended = os.stat(metrics).st_mtime if stage.state != "never run" and metrics.exists() else 0.0
    return StageStatus(stage.name, stage.state, stage.reasons, ended)


def _describe_stray(versions: tuple[Version, ...], here: str, folder: Path) -> str:
    """Return that the model in models/ is no version with an alias, so somebody changed or replaced it."""
    models = {version.model for version in versions if version.model}
    if not here or not models or here in models:
        return ""
    back = "`dvc checkout merge` puts it back, or `harr record --register` registers it"
    return f"{folder} holds none of these models; {back}"


def list_unsent(root: Path) -> list[str]:
    """Return what waits in work/mlflow, one note per stage (tasks/tracking/report.py), here and in recipes' folders.

    Raises:
        DamagedFile: a note is damaged.
    """
    lines = []
    for folder in [root / NOTES, *sorted(root.glob(f"{RUNS}/*/{NOTES}"))]:
        stages: dict[str, list[str]] = {}
        for path in sorted(folder.glob("*.json")):
            note = read_state(path, "the next stage puts it aside", address=str, stage=str, status=str)
            if note["status"] != "RUNNING" and note["stage"] not in stages.setdefault(note["address"], []):
                stages[note["address"]].append(note["stage"])
        lines += [
            f"{folder.relative_to(root)}: reports of stage {', '.join(names)} for {bare(address)}, which did not answer; "
            "`harr record`"
            for address, names in stages.items()
            if names
        ]
    return lines


def list_unfinished(root: Path) -> list[str]:
    """Return the non-empty folders of work/: unfinished or earlier work, completions."""
    folders = sorted(set((root / "work").glob("*")) - {root / NOTES})
    return [str(folder.relative_to(root)) for folder in folders if not folder.is_dir() or any(folder.iterdir())]
