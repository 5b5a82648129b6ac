"""What the start of a stage costs: ``python -m benchmarks.stage_overhead [FOLDER]``.

Every stage of a finished run (`dvc repro`; FOLDER, or this one) is started as DVC starts it, and ends where its work
would begin: what it took until then are imports, checks, the lock and the run in MLflow.
"""

import json
import os
import runpy
import subprocess
import sys
import time
from pathlib import Path

import psutil

from tasks.inputs.stages import READS

REPEATS = 3


def start(stage: str) -> None:
    """Be a stage up to its work; print the CPU seconds of this process until then."""
    from tasks.runtime import stage as running

    def end(work: object) -> None:
        spent = psutil.Process().cpu_times()
        print(json.dumps(spent.user + spent.system), file=sys.stderr, flush=True)
        os._exit(0)

    running._retry_work = end
    sys.argv = [f"tasks.{stage}"]
    runpy.run_module(f"tasks.{stage}", run_name="__main__", alter_sys=True)


def main() -> None:
    """Print a line per stage: the best of some starts."""
    print("stage      CPU s  wall s")
    for stage in READS:
        taken = []
        for _ in range(REPEATS):
            began = time.perf_counter()
            command = [sys.executable, "-m", "benchmarks.stage_overhead", "--stage", stage]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            taken.append((float(done.stderr.split()[-1]), time.perf_counter() - began))
        cpu, wall = map(min, zip(*taken, strict=True))
        print(f"{stage:<9} {cpu:6.2f} {wall:7.2f}", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--stage"]:
        start(sys.argv[2])
    else:
        root = Path(__file__).resolve().parents[1]
        os.environ["PYTHONPATH"] = str(root)
        os.chdir(sys.argv[1] if sys.argv[1:] else root)
        main()
