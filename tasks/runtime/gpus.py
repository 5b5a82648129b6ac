"""GPU leases: a stage that computes leases one GPU that no other stage has, or as many as HARR_GPUS says."""

import contextlib
import itertools
import os
import re
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from harr.errors import InUse, ParamsError
from harr.io.progress import stoppable
from tasks.runtime import locks

COMPUTING = frozenset(("embed", "generator", "filter", "train", "arms", "evaluate"))
"""The stages that use a GPU."""
LEASES = Path("~/.cache/harr/gpus")
"""A lock for each GPU, which pipelines in other folders of this machine see, too."""
COUNT = "HARR_GPUS"
"""Environment variable: the number of GPUs for a stage that can run in several processes."""
LOOK_SECONDS = 1.0


def visible_gpus() -> list[str]:
    """Return the names, as in CUDA_VISIBLE_DEVICES, of the GPUs that a process may use, or of their MIG instances."""
    if (names := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        return [name.strip() for name in names.split(",") if name.strip() not in ("", "-1")]
    try:
        done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    found: list[str] = []
    for kind, name in re.findall(r"^\s*(GPU|MIG) .*\(UUID: (\S+)\)", done.stdout, re.MULTILINE):
        if kind == "MIG" and found[-1].startswith("GPU"):
            found.pop()  # a process sees its instances instead
        found.append(name)
    return found


def gpu_count() -> int:
    """Return how many GPUs HARR_GPUS sets for a stage; 1 if it is unset.

    Raises:
        ParamsError: it is not a positive number.
    """
    if not (value := os.environ.get(COUNT) or "1").isdecimal() or value == "0":
        raise ParamsError(f"{COUNT} is {value!r}; expected the number of GPUs of a stage, from 1; or unset it")
    return int(value)


@contextlib.contextmanager
def lease_gpus(count: int) -> Iterator[None]:
    """Wait for ``count`` GPUs that no other stage has, and let this process see only them. Leases end with the process.

    If there is no choice, nothing changes.

    Raises:
        ParamsError: there are fewer.
    """
    names = visible_gpus()
    if count > max(1, len(names)):
        raise ParamsError(f"{COUNT} is {count}, and this process sees {len(names)} GPUs; lower it, or unset it")
    with contextlib.ExitStack() as leases:
        if len(names) > 1:
            os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(_lease(leases, names, count))
        yield


def _lease(leases: contextlib.ExitStack, names: Sequence[str], count: int) -> list[str]:
    """Return ``count`` GPUs once they are free; hold none until then."""
    for attempt in stoppable(itertools.count()):
        taken: list[str] = []
        for name in names:
            if len(taken) < count:
                with contextlib.suppress(InUse):
                    leases.enter_context(locks.hold(LEASES.expanduser() / name.replace("/", "-"), _refuse))
                    taken.append(name)
        if len(taken) == count:
            return taken
        leases.close()
        if not attempt:
            print(f"{len(taken)} of {len(names)} GPUs are free, {count} are wanted; waiting for other stages to end")
        time.sleep(LOOK_SECONDS)
    raise AssertionError("the loop ends by a return, or by a stop")


def _refuse(owner: str) -> None:
    raise InUse(owner)
