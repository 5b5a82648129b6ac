"""Check before a stage starts that disk and memory suffice; otherwise it would fail later."""

from dataclasses import dataclass
from pathlib import Path

from harr.errors import DamagedFile, NoRoom
from harr.index.kinds import memory_bytes
from harr.io.files import read_state
from harr.params import Params

SPARE = 64_000_000
"""Bytes of disk for what every stage writes: figures, plots, logs and the run's history."""
PLACES = {"embed": "data/vectors", "index": "data/index"}
"""Where the stages that grow with the corpus write; DVC keeps it, since such a stage may resume from it."""
MARKS = 24
"""Bytes per passage by which stage embed recognises its text."""
HOLD_INDEX = ("index", "filter", "train", "arms", "evaluate")
"""Stages that hold Milvus Lite's index in memory."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """A corpus on disk: ``rows`` (N), ``width`` (D) of its vectors, bytes of its ``text``; 0 if not known yet."""

    rows: int
    width: int
    text: int

    @property
    def vectors(self) -> int:
        """Return the bytes of all vectors, which are float32."""
        return 4 * self.rows * self.width


def sizes(root: Path) -> Sizes:
    """Return the sizes of the outputs under ``root``; damaged ones are reported by the stage that reads them."""
    rows, width = (_manifest(root / place, key) for place, key in (("data/corpus", "rows"), ("data/vectors", "width")))
    return Sizes(rows, width, _bytes(root / "data/corpus"))


def written(params: Params, size: Sizes) -> dict[str, int]:
    """Return the bytes written by the stages that grow with the corpus, by stage.

    Milvus Lite keeps the vectors, their index, and the text.
    """
    graph = round(memory_bytes(params.index, size.rows, size.width))
    index = 0 if params.index.uri else size.vectors + graph + size.text * params.index.full_text
    return {"embed": size.vectors + MARKS * size.rows, "index": index}


def check(stage: str, params: Params, root: Path, *, free: float, memory: float) -> None:
    """Refuse a stage that would not fit, before it does anything.

    Args:
        stage: its name.
        params: those of the run.
        root: the project's folder.
        free: bytes free on its disk.
        memory: bytes of memory that this process may use.

    Raises:
        NoRoom: says how much is needed and how much there is.
    """
    size, place = sizes(root), root / PLACES.get(stage, "metrics")
    writes = written(params, size).get(stage, 0)
    done = _bytes(root / "work" / stage) + (_bytes(place) if writes else 0)
    if (needed := SPARE + max(0, writes - done)) > free:
        raise NoRoom(
            f"stage {stage} needs {format_bytes(needed)}, {format_bytes(free)} free at {place.resolve()}; nothing written; make room "
            "(`dvc gc --workspace`, rm -r work), or run where there is more"
        )
    index_bytes = memory_bytes(params.index, size.rows, size.width)
    index_bytes += 0 if params.index.kind == "flat" else size.vectors  # Milvus Lite also keeps the vectors
    if stage in HOLD_INDEX and not params.index.uri and index_bytes > memory:
        raise NoRoom(
            f"stage {stage} needs {format_bytes(index_bytes)} of memory for a {params.index.kind} float32 index of {size.rows:,} x "
            f"{size.width}, {format_bytes(memory)} here; nothing written; set index.uri to a Milvus server"
        )


def memory_limit(total: int, cgroup: Path = Path("/sys/fs/cgroup/memory.max")) -> float:
    """Return the bytes that this process may use: the machine's ``total``, or less if its container has a limit.

    >>> memory_limit(8, Path("/nowhere"))
    8.0
    """
    try:
        return float(min(total, int(cgroup.read_text())))
    except (OSError, ValueError):  # no such file, or it says max
        return float(total)


def _manifest(folder: Path, key: str) -> int:
    try:
        return int(read_state(folder / "manifest.json", "", **{key: int})[key])
    except DamagedFile:
        return 0


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def format_bytes(count: float) -> str:
    """Return a number of bytes in a readable unit.

    >>> format_bytes(500), format_bytes(91_000_000), format_bytes(2.5e9)
    ('500 B', '91 MB', '2.5 GB')
    """
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= factor:
            return f"{count / factor:.{1 if unit == 'GB' else 0}f} {unit}"
    return f"{count:.0f} B"
