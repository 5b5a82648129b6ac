"""How a command reports an error: one line for a user's mistake or a machine fault, a traceback for a bug."""

import contextlib
import errno
import os
import re
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from harr.errors import HarrError, printable
from harr.io import progress

OF_A_PATH = (errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.EXDEV)
OF_RIGHTS = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EIO)
REMEDIES = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "make room"),
    **dict.fromkeys((errno.ENOLCK, errno.EOPNOTSUPP), "put the project on a local disk"),
    **dict.fromkeys((*OF_A_PATH, *OF_RIGHTS), "mend it"),
}
"""What to do about a disk fault, by its errno."""
OURS = ("harr", "tasks", "flows", "")
LESS_MEMORY = "lower embed.batch_size, filter.batch_size, train.states_per_pass or train.episodes_per_pass"


@contextlib.contextmanager
def errors_in_a_line() -> Iterator[None]:
    """Exit with status 1 and one line on stderr if the block raises an error that is not a bug."""
    try:
        yield
    except Exception as error:
        if type(error).__module__.startswith("httpx"):  # a stopping process need not notify a server that is away
            progress.leave()
        if not (line := str(error) if isinstance(error, HarrError) else machine_fault(error)):
            raise
        print(f"error: {printable(line)}", file=sys.stderr)
        sys.exit(1)


def machine_fault(error: Exception) -> str:
    """Return what a full disk, a forbidden file, little memory or a missing package means, in a line; "" for others.

    >>> machine_fault(OSError(errno.ENOSPC, "No space left on device", "data/vectors/x"))[:66]
    'data/vectors/x: No space left on device; what is finished is kept;'
    >>> machine_fault(ModuleNotFoundError("No module named 'prefect'", name="prefect"))
    "package prefect is not installed; run `pip install 'harr[pipeline]'`"
    >>> machine_fault(ModuleNotFoundError("No module named 'mcp.server'", name="mcp.server"))
    "package mcp.server is not installed; run `pip install 'harr[serve]'`"
    >>> machine_fault(ModuleNotFoundError("No module named 'no_such'", name="no_such"))
    'package no_such is not installed; run `pip install no-such`'
    >>> machine_fault(ValueError("no"))
    ''
    """
    if isinstance(error, ModuleNotFoundError) and (error.name or "").split(".")[0] not in OURS:
        return f"package {error.name} is not installed; run `pip install {_install(error.name or '')}`"
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":  # torch's
        fault = str(error).partition(". ")[0] or "out of memory"
        return f"{fault}; what is finished is kept; {LESS_MEMORY} and run the same command again"
    number = error.errno if isinstance(error, OSError) else None
    if match := re.search(r"\(os error (\d+)\)", str(error)):  # from a Rust library, such as safetensors
        number = int(match[1])
    elif "disk is full" in str(error):  # SQLite's
        number = errno.ENOSPC
    if number not in REMEDIES:
        return ""
    where = getattr(error, "filename2", None) or getattr(error, "filename", None) or Path().resolve()
    return (
        f"{where}: {os.strerror(number)}; what is finished is kept; {REMEDIES[number]} and run the same command again"
    )


def _install(module: str) -> str:
    """Return what to install for a module: an extra that provides it, preferably the pipeline's, else its package."""
    package = module.split(".")[0].replace("_", "-")
    extras: set[str] = set()
    with contextlib.suppress(metadata.PackageNotFoundError):
        for line in metadata.requires("harr") or ():
            if re.match(rf"{re.escape(package)}\b(?!-)", line):
                extras.update(re.findall(r"extra == ['\"](\w+)['\"]", line))
    best = min(extras - {"dev"}, key=lambda extra: (extra != "pipeline", extra), default="")
    return f"'harr[{best}]'" if best else package
