"""Folders compared by the digests of their files: where two differ, a failure names the files at once."""

import hashlib
from pathlib import Path


def digests(folder: Path) -> dict[str, str]:
    """The sha256 of every file by its path below ``folder``.

    Never compare the bytes themselves: on a machine that says it is CI, pytest prints the difference of two values
    that are not equal, and for two files of some kilobytes this takes minutes.
    """
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
