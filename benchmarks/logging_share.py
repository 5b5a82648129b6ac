"""What logging takes of a training step: ``python -m benchmarks.logging_share [--steps N]``.

Trains on recipes/smoke.yaml in a temporary folder and reports to MLflow (mlflow.db there) as stage train does. Logging
is what the training loop spends in ``log`` (points are buffered, and written every few seconds), and the last writing.
The first step, in which libraries are loaded, is left out of both.
"""

import argparse
import itertools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
BEFORE = ("download", "embed", "index", "filter")


def prepare(folder: Path, steps: int) -> None:
    """A place with everything that stage train needs."""
    for name in ("harr", "flows", "tasks"):
        (folder / name).symlink_to(ROOT / name)
    params = yaml.safe_load((ROOT / "recipes/smoke.yaml").read_text())
    params["train"]["steps"] = steps
    (folder / "params.yaml").write_text(yaml.safe_dump(params))
    for stage in BEFORE:
        subprocess.run([sys.executable, "-m", f"flows.{stage}"], cwd=folder, check=True, capture_output=True)


def measure() -> tuple[list[float], list[float], float]:
    """Seconds between the ends of steps, seconds in ``log`` for each, and seconds of the last writing."""
    from harr.params import Params
    from tasks.tracking.run import tracked_run
    from tasks.train import train_policy

    params = Params.load()
    ends, spent = [], []
    with tracked_run("train", params) as run:

        def log(step: int, values: Mapping[str, float]) -> None:
            began = time.perf_counter()
            run.log(step, values)
            if "seconds" in values:  # a step; at the end the generator's usage is logged, too
                ends.append(time.perf_counter())
                spent.append(ends[-1] - began)

        train_policy(params, log)
        began = time.perf_counter()
        run.send()
        last = time.perf_counter() - began
    return [after - before for before, after in itertools.pairwise(ends)], spent[1:], last


def main() -> None:
    """Print the step, what logging takes of it, and the share."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.logging_share", description=main.__doc__)
    parser.add_argument("--steps", type=int, default=60, help="training steps (default: 60)")
    steps = parser.parse_args().steps
    for name in ("MLFLOW_TRACKING_URI",):
        os.environ.pop(name, None)
    os.environ |= {"PREFECT_API_URL": "http://127.0.0.1:9/api", "HARR_EXECUTION": "logging"}  # without Prefect
    with tempfile.TemporaryDirectory() as folder:
        prepare(Path(folder), steps)
        os.chdir(folder)
        took, spent, last = measure()
        os.chdir(ROOT)
    step, logging = sum(took) / len(took), (sum(spent) + last) / len(spent)
    print(
        f"{len(took)} steps of {step:.3f} s; logging {1000 * logging:.2f} ms a step, {100 * logging / step:.2f} % of it"
    )
    print(f"the longest call {1000 * max(spent):.1f} ms, the last writing {1000 * last:.1f} ms")


if __name__ == "__main__":
    main()
