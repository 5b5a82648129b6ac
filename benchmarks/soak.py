"""Small cycles in one process, to see whether anything grows: ``python -m benchmarks.soak --cycles 2000 --minutes 60``.

A cycle opens an MLflow run and the index, rolls out, makes one GRPO step with its checkpoint, publishes the adapter,
evaluates the untrained and the trained arm, and closes everything. Prints the slope of memory (RSS) over the second
half of the cycles; open files, threads, child processes and files on disk are counted at the same points.
"""

import argparse
import contextlib
import ctypes
import gc
import io
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil

os.environ |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
ROOT = Path(__file__).resolve().parents[1]


def steady_allocator() -> None:
    """Make glibc give every block of 256 KiB its own pages, as it does at first.

    It raises that limit as large blocks are freed; then loading and freeing models leaves holes in the heap, and the
    process grows by some 0.08 MB per cycle although nothing is kept.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").mallopt(-3, 1 << 18)  # M_MMAP_THRESHOLD


def begin(folder: Path) -> Any:
    """Make a tiny world in ``folder``, which becomes the current folder, up to stage filter; return its parameters."""
    from benchmarks.crash import PARAMS
    from harr.params import Params
    from tasks.download import download_corpus
    from tasks.embed import embed_passages
    from tasks.filter import filter_training_questions
    from tasks.index import index_passages

    os.chdir(folder)
    Path("params.yaml").write_text(PARAMS.replace("steps: 3", "steps: 1").replace("seeds: 2", "seeds: 1"))
    params = Params.load()
    for stage in (download_corpus, embed_passages, index_passages):
        stage(params)
    filter_training_questions(params, lambda step, values: None)
    return params


def cycle(params: Any) -> None:
    """Make rollouts, a step, a checkpoint, an adapter and an evaluation; tracked."""
    from tasks.common import forget
    from tasks.evaluate import summarise_arms, write_evaluation
    from tasks.paths import QUESTIONS, WORK
    from tasks.play import draw_test_questions, play_arms
    from tasks.tracking.run import tracked_run
    from tasks.train import train_policy

    with tracked_run("train", params) as run:
        history, _ = train_policy(params, run.log)
        run.record("train", {"reward": history[-1]["reward_mean"]})
    forget(WORK / "train")
    with tracked_run("evaluate", params) as run:
        rows, episodes = play_arms(params, draw_test_questions(params, QUESTIONS / "test.jsonl"), run.log, model=None)
        write_evaluation(params, rows, episodes, summarise_arms(params, rows))


def measure() -> dict[str, float]:
    """Return what must not grow: RSS in MB, and counts."""
    gc.collect()  # tasks/__init__.py makes it rare, and a stage has its own process
    me = psutil.Process()
    names = [path for place in ("work", "data", "models", ".harr") for path in Path(place).rglob("*") if path.is_file()]
    return {
        "rss_mb": me.memory_info().rss / 1e6,
        "open_files": me.num_fds(),
        "threads": me.num_threads(),
        "children": len(me.children(recursive=True)),
        "files": len(names),
        "stumps": sum(path.name.endswith((".tmp", ".draft")) for path in names),
    }


def main() -> int:
    """Print the figures; exit with 1 if something grew."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cycles", type=int, default=2000)
    parser.add_argument("--minutes", type=float, default=60.0)
    options = parser.parse_args()
    steady_allocator()
    sys.path.insert(0, str(ROOT))
    os.environ["HARR_EXECUTION"] = "soak"
    began, seen = time.monotonic(), []
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        os.environ["MLFLOW_TRACKING_URI"] = f"sqlite:///{folder}/mlflow.db"
        params = begin(Path(folder))
        while len(seen) < options.cycles and time.monotonic() - began < 60 * options.minutes:
            with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
                cycle(params)
            seen.append(measure())
            if len(seen) % 5 == 1:
                print(f"{len(seen)} cycles, {time.monotonic() - began:.0f} s: {seen[-1]}", flush=True)
        os.chdir(ROOT)
    half = seen[len(seen) // 2 :]
    slope = float(np.polyfit(np.arange(len(half)), [one["rss_mb"] for one in half], 1)[0]) if len(half) > 2 else 0.0
    grown = {name: seen[-1][name] - half[0][name] for name in half[0] if name != "rss_mb"}
    print(f"{len(seen)} cycles in {(time.monotonic() - began) / 60:.1f} min")
    print(
        f"memory: {half[0]['rss_mb']:.0f} MB at half, {seen[-1]['rss_mb']:.0f} MB at the end, {slope:+.4f} MB a cycle"
    )
    print(f"growth over the second half: {grown}")
    return int(slope > 0.05 or any(value > 0 for name, value in grown.items() if name != "open_files"))


if __name__ == "__main__":
    sys.exit(main())
