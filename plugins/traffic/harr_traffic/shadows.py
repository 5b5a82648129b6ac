"""Rows of a log: searches as a shadow candidate would have answered them (``shadows-<day>.jsonl``)."""

from dataclasses import dataclass
from pathlib import Path

from harr_traffic.log import read_records

SHADOWS = "shadows"


@dataclass(frozen=True, slots=True)
class Shadowed:
    """A search as a candidate would have answered it, which nobody saw."""

    id: str
    """Id of the search."""
    at: float
    version: str
    """Version of the candidate."""
    chosen: tuple[str, ...] = ()
    """Ids of its best passages, as many as were served."""
    logprob: float | None = None
    """Log-probability (nats) of what was served under the candidate, among the logged pool, if that was drawn."""


def read_shadows(folder: Path) -> list[Shadowed]:
    """Return how candidates would have answered the searches of a folder, by time.

    Raises:
        ParamsError, DamagedFile: as :func:`harr_traffic.log.read_log`.
    """
    return read_records(Shadowed, folder, SHADOWS, key=lambda one: (one.id, one.version))
