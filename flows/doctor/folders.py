"""Checks of files: the MLflow store, the index and its identity, leftovers."""

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from flows.doctor.finding import Finding, fail, ok, size, warn
from harr.errors import DamagedFile, bare
from harr.io.files import read_state
from harr.params import Params
from tasks.paths import NOTES, RUNS
from tasks.tracking.relocate import foreign_roots

REBUILD = "dvc repro -f -s index"
SEND = "harr record"
PLACES = ("data", "models", "metrics", "plots", "reports", "work", ".harr")


def check_store(root: Path, address: str, environment: Mapping[str, str]) -> list[Finding]:
    """Look whether runs go to a folder, which MLflow 3 refuses: they go to mlflow.db, and mlruns/ keeps artifacts.

    In a folder that was copied or moved mlflow.db may still name the mlruns that it came from.
    """
    if urlsplit(address).scheme in ("", "file") and environment.get("MLFLOW_ALLOW_FILE_STORE", "").lower() != "true":
        fix = 'tracking.uri: "" in params.yaml (runs go to mlflow.db), and unset MLFLOW_TRACKING_URI'
        return [fail("MLflow store", f"{address} is a folder, which MLflow 3 refuses", fix)]
    old = sorted(path.parent.name for path in (root / "mlruns").glob("*/meta.yaml"))
    if old:
        what = f"mlruns/ holds runs of an old file store ({', '.join(old[:4])}); MLflow 3 does not show them"
        return [warn("MLflow store", what, "mv mlruns mlruns-old && mkdir mlruns   (or `mlflow migrate-filestore`)")]
    database = root / address.removeprefix("sqlite:///")
    if address.startswith("sqlite:///") and (there := foreign_roots(database)):
        what = f"{database.name} keeps artifacts in {', '.join(there)}: this folder was copied or moved from there"
        return [warn("MLflow store", what, "harr register   (as every run does, it takes its own mlruns from then on)")]
    return [ok("MLflow store", bare(address))]


def check_index(root: Path, params: Params) -> list[Finding]:
    """Look whether the index belongs to the vectors, the vectors to the corpus, and Milvus Lite's files are whole."""
    corpus, vectors, index = (_manifest(root / "data" / name) for name in ("corpus", "vectors", "index"))
    if index is None:
        return [ok("index", "none yet")]
    if not index:
        return [fail("index", "data/index/manifest.json is damaged", REBUILD)]
    findings = []
    if vectors is not None and vectors.get("identity") != index["identity"]:
        what = f"built as {index['identity']}, but data/vectors is {vectors.get('identity', 'damaged')}"
        findings.append(fail("index", what, "dvc repro index"))
    if corpus and vectors and vectors.get("corpus") != corpus.get("identity"):
        what = f"made of corpus {vectors.get('corpus')}, but data/corpus is {corpus.get('identity')}"
        findings.append(fail("vectors", what, "dvc repro index"))
    if not params.index.uri:
        findings += _check_lite(root / "data/index/milvus.db", root)
    for path in truncated(root / "data/index", root / "work/index"):
        what = f"{path.relative_to(root)} is cut off; Milvus Lite can never load it"
        findings.append(fail("index", what, f"rm {path.relative_to(root)}   (it is made again on loading)"))
    where = bare(params.index.uri) or "Milvus Lite"
    return findings or [ok("index", f"{index['rows']:,} passages, identity {index['identity']}, in {where}")]


def _manifest(folder: Path) -> dict[str, Any] | None:
    """Return the manifest of a stage's output; None: there is no output; empty: it is damaged."""
    if not folder.exists():
        return None
    try:
        return read_state(folder / "manifest.json", "", identity=str)
    except DamagedFile:
        return {}


def _check_lite(path: Path, root: Path) -> Iterator[Finding]:
    place = path.relative_to(root)
    if path.is_file():
        yield fail("index", f"{place} is a file of Milvus Lite 2, which Milvus Lite 3 cannot read", REBUILD)
    elif not path.exists():
        yield fail("index", f"{place} is missing; the index was built on a server, or lost", REBUILD)


def truncated(*folders: Path) -> list[Path]:
    """Return the index files that a kill cut off."""
    return [path for folder in folders for path in sorted(folder.rglob("*.idx")) if not _whole(path)]


def _whole(path: Path) -> bool:
    """Tell an array by its size, JSON by its end."""
    with path.open("rb") as handle:
        start = handle.read(1)
        if start == b"{":
            handle.seek(-1, os.SEEK_END)
            return handle.read() == b"}"
    if start != b"\x93":
        return bool(start)
    try:
        np.load(path, mmap_mode="r", allow_pickle=False)
    except ValueError:
        return False
    return True


def check_leftovers(root: Path, *, busy: bool) -> list[Finding]:
    """Look for temporary files that a kill left; while something runs they may be in use."""
    found = temporary_files(root)
    names = [str(path.relative_to(root)) for path in found]
    if not names or busy:
        return [ok("temporary files", f"{len(names)}, in use" if names else "none")]
    what = f"{len(names)} left by a kill: {', '.join(names[:3])}{' ...' if len(names) > 3 else ''}"
    remove = "rm -r" if any(path.is_dir() for path in found) else "rm"
    return [warn("temporary files", what, f"{remove} {' '.join(names[:20])}")]


def temporary_files(root: Path) -> list[Path]:
    """Return files and folders under names that only unfinished writing uses.

    A result that was put aside for a new one, which has not come yet, is none of them.
    """
    named = [path for place in PLACES for path in walk(root / place) if path.match(".*.tmp")]
    only = {path for path in named if path.match("*.old.tmp") and not path.with_name(path.name[1:-8]).exists()}
    return sorted(set(named) - only)


def walk(folder: Path) -> Iterator[Path]:
    """Yield every file and folder under a folder, also while others are removed there."""
    for where, folders, names in os.walk(folder):
        yield from (Path(where) / name for name in [*folders, *names])


@dataclass(frozen=True)
class Kept:
    """Reports that an MLflow server has not received: its address, the stages, and the folder where they wait."""

    place: str
    address: str
    stages: tuple[str, ...]

    def __str__(self) -> str:
        return f"reports of stage {', '.join(self.stages)} for {bare(self.address)}, which did not answer"


def kept_reports(root: Path) -> list[Kept]:
    """Return what waits in work/mlflow, a note per stage (tasks/tracking/report.py), here and in recipes' folders."""
    found = []
    for folder in [root / NOTES, *sorted(root.glob(f"{RUNS}/*/{NOTES}"))]:
        stages: dict[str, list[str]] = {}
        for path in sorted(folder.glob("*.json")):
            try:
                note = read_state(path, "", address=str, stage=str, status=str)
            except DamagedFile:  # the next stage puts it aside, with a line
                note = {"address": "an unknown server", "stage": f"? ({path.name} is damaged)", "status": ""}
            if note["status"] != "RUNNING":
                stages.setdefault(note["address"], []).append(note["stage"])
        place = str(folder.relative_to(root))
        found += [Kept(place, address, tuple(dict.fromkeys(names))) for address, names in stages.items()]
    return found


def check_reports(root: Path, *, busy: bool) -> list[Finding]:
    """Look for reports that a server which was away has not received; while a stage runs it may send them."""
    kept = kept_reports(root)
    if not kept or busy:
        return [ok("reports", "all sent" if not kept else f"{kept[0]}; the stage that runs tries again")]
    return [warn("reports", f"{one} ({one.place})", f"start the server, then `{SEND}`") for one in kept]


def unfinished(root: Path) -> list[tuple[str, int, str]]:
    """Return (folder, number of entries, size) of what work/ keeps: unfinished or earlier work, completions."""
    found = []
    for folder in sorted(set((root / "work").glob("*")) - {root / NOTES}):
        count, total = 0, 0
        with contextlib.suppress(OSError):
            count = len(list(folder.iterdir())) if folder.is_dir() else 1
            total = sum(path.stat().st_size for path in walk(folder) if path.is_file())
        if count:
            found.append((str(folder.relative_to(root)), count, size(total)))
    return found
