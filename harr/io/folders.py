"""The files of a user's folder, whatever links it contains."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

POINTER = b"version https://git-lfs"
FETCH = "a pointer of Git LFS in place of the file; run `git lfs pull`"


def is_pointer(path: Path) -> bool:
    """Return whether a file is Git LFS's placeholder for a file that it has not fetched."""
    with path.open("rb") as handle:
        return handle.read(len(POINTER)) == POINTER


def files_below(folder: Path, refused: Callable[[OSError], object] = lambda error: None) -> Iterator[Path]:
    """Yield the files below a folder sorted by name, a folder's own files before those of its subfolders.

    Links are followed, but each folder is entered only once, so cycles end. Hidden files and folders (``.git``) are
    skipped. ``refused`` is called with the error of every unreadable folder. Broken links and pipes are yielded, too.

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
