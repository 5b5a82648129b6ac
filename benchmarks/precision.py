"""What training in bfloat16 costs in quality: `python -m benchmarks.precision FOLDER`.

FOLDER is a project whose stages download to filter were run. ``trained`` is trained from the same start, with the same
questions and seeds, in bfloat16 and in float32; states are read in the same number format when the test questions are
played. Every run has its own process, since Accelerate keeps one format per process. Answer F1 is kept in ``--out``, so
that a killed run can resume, and the paired difference is printed with intervals over seeds and questions.
"""

import argparse
import os
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean
from typing import Any

os.environ |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}

import numpy as np

from benchmarks.ambiguity import RESAMPLES, TRAINED, played, trained
from harr.builders.places import Places
from harr.corpus.passages import read_questions
from harr.evaluate.intervals import resample
from harr.io.files import read_json, write_json
from harr.params import Params

FORMATS = ("bfloat16", "float32")
LEARNT, ASKED = Path("data/filtered/questions.jsonl"), Path("data/questions/test.jsonl")


def run(folder: Path, precision: str, seed: int) -> dict[str, Any]:
    """Train in a number format, and return the answer F1 of test questions and the CPU seconds of training."""
    os.chdir(folder)
    params, places = Params.load(Path("params.yaml")), Places.of_project(Path.cwd())
    optimizer = params.train.optimizer.model_copy(update={"precision": precision})
    own = params.model_copy(update={"train": params.train.model_copy(update={"optimizer": optimizer})})
    with tempfile.TemporaryDirectory(prefix="harr-precision-") as place:
        adapter, began = Path(place) / "adapter", time.process_time()
        trained(own, places, TRAINED, LEARNT, adapter, seed)
        seconds = round(time.process_time() - began)
        return {"f1": played(own, places, TRAINED, read_questions(ASKED), adapter)["f1"], "train_cpu_seconds": seconds}


def main() -> None:
    """Train and play what is not kept yet, seed by seed, and print the difference."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.precision", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, default=Path("results/precision.json"))
    parser.add_argument("--seeds", type=int, default=5)
    asked = parser.parse_args()
    kept: dict[str, dict[str, Any]] = read_json(asked.out) if asked.out.exists() else {}
    with ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=1) as processes:
        for seed in range(asked.seeds):
            for precision in FORMATS:
                if (key := f"{precision} {seed}") in kept:
                    continue
                kept[key] = processes.submit(run, asked.folder.resolve(), precision, seed).result()
                write_json(asked.out, kept)
                f1, seconds = 100 * fmean(kept[key]["f1"]), kept[key]["train_cpu_seconds"]
                print(f"{key}: F1 {f1:.1f}, trained in {seconds} CPU s", flush=True)
    narrow, wide = (np.array([kept[f"{name} {seed}"]["f1"] for seed in range(asked.seeds)]) for name in FORMATS)
    golds = [question.gold_ids for question in read_questions(asked.folder / ASKED)]
    drawn = resample([100 * narrow, 100 * wide, 100 * (narrow - wide)], golds, resamples=RESAMPLES, seed=0)
    for name, mean, (low, high) in zip((*FORMATS, "difference"), drawn.means, drawn.interval(), strict=True):
        print(f"{name}: {mean:.1f} [{low:.1f}, {high:.1f}], n {len(golds)}, {asked.seeds} seeds")


if __name__ == "__main__":
    main()
