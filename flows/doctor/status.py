"""Where the project stands: stages, runs, versions, processes, what was left behind."""

import os
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flows.doctor import folders, processes, stages
from flows.doctor.finding import DEADLINE_SECONDS, broken, in_background
from flows.doctor.runs import Store, Version, lost_runs, model_here, read_store, store_address
from harr.errors import HarrError
from harr.io.files import read_state
from harr.params import Params
from tasks.paths import METRICS, SINCE, trained_folder

RUNS = 6
"""Number of the last runs that are shown."""


@dataclass(frozen=True)
class StageStatus:
    """A stage, why it is not fresh, when it last ran to its end (seconds since 1970) and for how long."""

    name: str
    state: str
    reasons: tuple[str, ...]
    ended: float
    seconds: float


@dataclass(frozen=True)
class RunStatus:
    """A run of the pipeline: its status (``LOST`` where its process is gone), and the stages it ran."""

    name: str
    status: str
    started: float
    seconds: float
    stages: tuple[str, ...]


@dataclass(frozen=True)
class Status:
    """What `harr status` shows; ``trouble`` says in a line what could not be read.

    ``stray`` says in a line that the model in models/ is none of ``versions``; empty where it is one.
    """

    stages: tuple[StageStatus, ...]
    runs: tuple[RunStatus, ...]
    model: str
    headline: str
    versions: tuple[Version, ...]
    stray: str
    processes: tuple[processes.Process, ...]
    leftovers: tuple[str, ...]
    training: str = ""
    trouble: str = ""


def status(root: Path, environment: Mapping[str, str]) -> Status:
    """Read it all; what cannot be read is left out, and ``trouble`` names it.

    Raises:
        HarrError: ``root`` is not the project's folder, or params.yaml is wrong.
    """
    if not (root / "dvc.yaml").exists():
        raise HarrError(f"no dvc.yaml in {root.resolve()}; run this in the folder of a harr project")
    params = Params.load(root / "params.yaml")
    address, ours = store_address(params, environment), processes.scan(root)
    begun: dict[str, Future[Any]] = {
        "stages": in_background(lambda: stages.read_stages(root)),
        "training": in_background(lambda: _since_training(root, params.index.retrain_after)),
        "MLflow": in_background(lambda: read_store(root, address, params)),
        "model": in_background(lambda: model_here(root, params)),
        "left behind": in_background(lambda: _leftovers(root, ours)),
        "processes": in_background(lambda: processes.live_executions(ours, root)),
    }
    read: dict[str, Any] = {
        "stages": (),
        "training": "",
        "MLflow": Store(),
        "model": "",
        "left behind": (),
        "processes": set(),
    }
    trouble = []
    for name, future in begun.items():
        try:
            read[name] = future.result(DEADLINE_SECONDS)
        except Exception as error:
            problem = broken(name, error)
            trouble.append(f"{name}: {problem.found}; {problem.fix}")
    store = read["MLflow"]
    return Status(
        stages=tuple(_stage(stage, store, root, ours) for stage in read["stages"]),
        runs=_runs(store, read["processes"] if address.startswith("sqlite") else None),
        model=params.tracking.registered_model,
        headline=params.headline,
        versions=store.versions,
        stray=_stray(store.versions, read["model"], trained_folder(params)[1]),
        processes=ours,
        leftovers=read["left behind"],
        training=read["training"],
        trouble=" | ".join(trouble),
    )


def _since_training(root: Path, limit: float) -> str:
    """Return how much of the corpus changed since training began with it, as stage index told; empty where it did not.

    Raises:
        DamagedFile: metrics/index.json is damaged.
    """
    path = root / METRICS / "index.json"
    told = read_state(path, "run `dvc repro -f -s index`") if path.exists() else {}
    if f"{SINCE}_passages" not in told:
        return ""
    changes = [f"{int(told.get(f'{SINCE}_{name}', 0)):,} {name}" for name in ("added", "removed", "changed")]
    passages, share = int(told[f"{SINCE}_passages"]), 100 * told.get(f"{SINCE}_share", 0.0)
    return (
        f"{', '.join(changes)} of {passages:,} passages since training ({share:.1f} %); trained again above "
        f"{100 * limit:g} % (index.retrain_after), or by `harr run --again`"
    )


def _stage(stage: stages.Stage, store: Store, root: Path, ours: tuple[processes.Process, ...]) -> StageStatus:
    """Return the stage with its last finished run, or the time of its metrics file where no run is known."""
    running = any(one.name == f"tasks.{stage.name}" and not one.recipe for one in ours)
    done = [run for run in store.runs if run.stage == stage.name and run.status == "FINISHED"]
    ended, seconds = (done[0].ended, done[0].ended - done[0].started) if done else (0.0, 0.0)
    metrics = root / "metrics" / f"{stage.name}.json"
    if not done and stage.state != "never run" and metrics.exists():
        ended = os.stat(metrics).st_mtime
    return StageStatus(stage.name, "running" if running else stage.state, stage.reasons, ended, seconds)


def _runs(store: Store, alive: set[str] | None) -> tuple[RunStatus, ...]:
    """Return the last parent runs; ``alive`` is None where a run may belong to another machine."""
    lost = {run.id for run in lost_runs(store, alive)} if alive is not None else set()
    found = []
    for run in [run for run in store.runs if not run.parent][:RUNS]:
        children = [child.stage for child in reversed(store.runs) if child.parent == run.id and child.stage]
        state = "LOST" if run.id in lost else run.status
        ran = run.ended - run.started if run.ended and run.status != "RUNNING" else 0.0
        found.append(RunStatus(run.name, state, run.started, ran, tuple(dict.fromkeys(children))))
    return tuple(found)


def _stray(versions: tuple[Version, ...], here: str, folder: Path) -> str:
    """Return that the model in models/ is no version with an alias, so that somebody changed or exchanged it."""
    known = {one.model for one in versions if one.model}
    if not here or not known or here in known:
        return ""
    return f"{folder} holds none of these models; `dvc checkout merge` puts it back, or `harr register` registers it"


def _leftovers(root: Path, ours: tuple[processes.Process, ...]) -> tuple[str, ...]:
    found = [f"{name}: {count} entries, {told}" for name, count, told in folders.unfinished(root)]
    found += [f"{one.place}: {one}; `{folders.SEND}`" for one in folders.kept_reports(root)]
    if not ours:
        found += [f"{path.relative_to(root)}: a temporary file" for path in folders.temporary_files(root)]
        dead = len(processes.owners(root))
        found += [f".harr/owners: {dead} of dead processes (the next run forgets them)"] if dead else []
    return tuple(found)
