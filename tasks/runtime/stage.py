"""How a stage runs: only if there is room for it, once at a time per folder, with a run in MLflow."""

import argparse
import contextlib
import io
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from harr.errors import ServiceUnavailable
from harr.params import Params
from tasks.runtime import gpus, limits, locks, signals
from tasks.runtime.command import run_command
from tasks.runtime.launch import join_main_process, joins_main_process, launch, process_count
from tasks.runtime.output import block
from tasks.tracking.run import Run, tracked_run

Work = Callable[[Params, Run], None]
KERNELS = {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "32", "LRU_CACHE_CAPACITY": "1"}
"""How many kernels oneDNN and torch cache for input shapes in a stage. Their default of 1,024 takes hundreds of MB in
training, where shapes hardly ever repeat (docs/performance.md). Values set in the environment stay."""
PAUSES = (5.0, 30.0)
"""Seconds after which a stage retries a server that did not answer."""


def main(stage: str, work: Work, **options: Any) -> None:
    """Run the command `python -m tasks.<stage>`, which has no options; see :func:`run_stage`."""
    argparse.ArgumentParser(f"python -m tasks.{stage}", description=work.__doc__).parse_args()
    run_stage(stage, work, **options)


def run_stage(
    stage: str,
    work: Work,
    *,
    checks: bool = False,
    join: Callable[[Params], object] | None = None,
    end: Callable[[], object] = bool,
) -> None:
    """Run a stage and exit: 0, 1 for a ``HarrError``, 130 or 143 for a signal.

    Args:
        stage: its name in dvc.yaml.
        work: what it does.
        checks: whether it checks data, for which Great Expectations is loaded in its own process.
        join: its plain work for further processes of `accelerate launch`; None: it runs in one process only.
        end: removes unfinished work once the stage has reported.
    """
    for name, value in KERNELS.items():
        os.environ.setdefault(name, value)
    if isinstance(sys.stdout, io.TextIOWrapper):  # keeps the order of lines in a log
        sys.stdout.reconfigure(line_buffering=True)

    def body() -> None:
        signals.follow()
        if joins_main_process(join):
            join_main_process(stage, join)
            return
        alone = process_count() == 1  # else `accelerate launch` has assigned the GPUs
        count = gpus.gpu_count() if alone and join else 1
        with gpus.lease_gpus(count) if alone and stage in gpus.COMPUTING else contextlib.nullcontext():
            if count > 1:
                launch(stage, count)
            else:
                perform(stage, work, checks=checks)
                end()

    run_command(body)


def perform(stage: str, work: Work, *, checks: bool = False) -> None:
    """Do the work of a stage in this process.

    Raises:
        NoRoom: too little disk or memory. InUse: another process runs this stage here.
    """
    params = Params.load()
    free, memory = shutil.disk_usage(Path()).free, limits.memory_limit(psutil.virtual_memory().total)
    limits.check(stage, params, Path(), free=free, memory=memory)
    with locks.lock_stage(stage), block(stage, params):
        if checks:
            from tasks.expectations.process import checker

            checker()
        with tracked_run(stage, params) as run:
            _retry_work(lambda: work(params, run))


def _retry_work(work: Callable[[], None]) -> None:
    """Do a stage's work; if a server does not answer, continue after a pause. Waiting does not help a wrong input.

    Several processes do not retry: the others have ended with the same error.
    """
    for pause in PAUSES if process_count() == 1 else ():
        try:
            return work()
        except ServiceUnavailable as error:
            print(f"{error}; trying again in {pause:.0f} s", file=sys.stderr)
            time.sleep(pause)
    return work()
