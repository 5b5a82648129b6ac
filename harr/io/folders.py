"""The files of a folder that a person keeps, whatever links are in it."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

POINTER = b"version https://git-lfs"
FETCH = "a pointer of Git LFS in place of the file; run `git lfs pull`"


def is_pointer(path: Path) -> bool:
    """Return whether a file is what Git LFS leaves in place of one that it has not fetched."""
    with path.open("rb") as handle:
        return handle.read(len(POINTER)) == POINTER


def files_below(folder: Path, refused: Callable[[OSError], object] = lambda error: None) -> Iterator[Path]:
    """Yield the files below a folder in the order of their names, those of a folder before those of the folders in it.

    Links are followed, and each folder is entered once, so that one that leads back ends. What is hidden (``.git``) is
    left alone. ``refused`` is called with every folder that cannot be read. Broken links and pipes are yielded, too.

    >>> import tempfile
    >>> place = Path(tempfile.mkdtemp())
    >>> for name in ("b", "a", ".hidden"):
    ...     _ = (place / name).write_text("")
    >>> (place / "again").symlink_to(place)
    >>> [path.name for path in files_below(place)]
    ['a', 'b']
    """
    entered: set[tuple[int, int]] = set()
    for place, folders, names in os.walk(folder, onerror=refused, followlinks=True):
        here = os.stat(place)
        if (here.st_dev, here.st_ino) in entered:
            folders.clear()
            continue
        entered.add((here.st_dev, here.st_ino))
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (Path(place) / name for name in sorted(names) if not name.startswith("."))
