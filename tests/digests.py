"""Folders compared by their files' digests: where two differ, a failure names the files at once."""

import hashlib
from pathlib import Path


def digests(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of every file by its path below ``folder``.

    Never compare the bytes themselves: on a CI machine pytest prints the difference of two unequal values, which takes
    minutes for files of a few kilobytes.
    """
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
