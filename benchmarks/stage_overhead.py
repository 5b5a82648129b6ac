"""What a stage costs beside its own work: ``python -m benchmarks.stage_overhead``.

Runs the stages of recipes/smoke.yaml in a temporary folder under one Prefect server, each as a
process of its own, as DVC does. Own work is the time inside the tasks that call harr, with the
imports they trigger; overhead is the rest of the process: Prefect, MLflow, Great Expectations, start and exit.
"""

import os
import runpy
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

WORK = {
    "download": {"download_corpus"},
    "embed": {"embed_passages"},
    "index": {"index_passages"},
    "filter": {"filter_training_questions", "plot_filter"},
    "train": {"train_policy", "plot_training"},
    "evaluate": {"play_arms", "summarise_arms", "write_evaluation", "play_occluded", "audit_play", "plot_and_report"},
    "merge": {"merge_adapter"},
}
ROOT = Path(__file__).resolve().parents[1]


def run_stage(stage: str) -> None:
    """Run one stage in this process and print the seconds of its own work to the file ``seconds``."""
    import prefect

    call, spent = prefect.Task.__call__, [0.0]

    def timed(self: Any, *values: Any, **named: Any) -> Any:
        began = time.perf_counter()
        try:
            return call(self, *values, **named)
        finally:
            spent[0] += (time.perf_counter() - began) * (self.name in WORK[stage])

    prefect.Task.__call__ = timed
    sys.argv = [f"flows.{stage}"]
    runpy.run_module(f"flows.{stage}", run_name="__main__", alter_sys=True)
    Path("seconds").write_text(str(spent[0]))


def main() -> None:
    """Print a line per stage; twice, because the first run also makes the databases."""
    from flows.server import free_port, healthy, prefect_server

    with tempfile.TemporaryDirectory() as folder:
        for name in ("harr", "flows", "tasks", "benchmarks"):
            (Path(folder) / name).symlink_to(ROOT / name)
        shutil.copy(ROOT / "recipes/smoke.yaml", Path(folder) / "params.yaml")
        os.chdir(folder)
        os.environ["PREFECT_HOME"] = f"{folder}/prefect"
        port = free_port()
        url = f"http://127.0.0.1:{port}/api"
        with prefect_server(port):
            while not healthy(url):
                time.sleep(0.2)
            for repeat in ("first", "again"):
                environment = {**os.environ, "PREFECT_API_URL": url, "HARR_EXECUTION": repeat}
                for stage in WORK:
                    began = time.perf_counter()
                    command = [sys.executable, "-m", "benchmarks.stage_overhead", stage]
                    with Path("stage.log").open("w") as log:
                        subprocess.run(command, env=environment, check=True, stdout=log, stderr=log)
                    wall, work = time.perf_counter() - began, float(Path("seconds").read_text())
                    print(f"{repeat} {stage:<9} {wall:6.2f} s = work {work:6.2f} s + overhead {wall - work:5.2f} s")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        run_stage(sys.argv[1])
    else:
        main()
