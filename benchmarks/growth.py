"""How cost grows with size: ``python -m benchmarks.growth [--largest 100000]``.

Needs the stages download to filter (``dvc repro filter``). Each axis is measured at several sizes in CPU seconds of
this process with one thread, and the exponent is the slope of log cost over log size by least squares: 1 is
proportional. Figures go to results/growth.json, the plot to docs/images/growth.svg.

- passages: a fictional corpus with a hash encoder's vectors of width 128, so that files and indexes are measured:
  write it, embed it, index it flat in Milvus Lite, index its words and its titles, and ask 200 questions by vector;
- questions, group size and hops: rollouts of the project in the current folder, sampled as in training;
- tokens: texts of given lengths through the project's encoder.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path

os.environ |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}

import matplotlib.pyplot as plt
import numpy as np
import torch
from harr_links.mentions import build_mentions
from harr_links.words import build_words

from benchmarks import million
from harr.builders.setup import open_setup
from harr.corpus.passages import Passages
from harr.io.files import write_json
from harr.params import Params
from harr.rag.rollout import play
from harr.rag.setup import Setup
from tasks.paths import FILTERED, PLACES

ROOT = Path(__file__).resolve().parents[1]
KEPT, PLOT = ROOT / "results" / "growth.json", ROOT / "docs" / "images" / "growth.svg"
WIDTH = 128
HOPS = [1, 2, 3, 4, 5]


@dataclass
class Curve:
    """The cost of some work, in CPU seconds, at each size of an axis."""

    axis: str
    work: str
    sizes: list[int]
    seconds: list[float]

    @property
    def exponent(self) -> float:
        """Return the slope of log cost over log size."""
        return float(np.polyfit(np.log(self.sizes), np.log(self.seconds), 1)[0])


def cost(work: Callable[..., object], *given: object, times: int = 1) -> float:
    """Return the fewest CPU seconds of some work with these arguments."""
    found = []
    for _ in range(times):
        began = time.process_time()
        work(*given)
        found.append(time.process_time() - began)
    return min(found)


def passages(largest: int) -> Iterator[Curve]:
    """Measure the steps of a corpus, from 1,000 passages to the largest, ten times as many each time."""
    sizes = [10**power for power in range(3, 8) if 10**power <= largest]
    costs: dict[str, list[float]] = {}
    for size in [sizes[0], *sizes]:  # once to warm up
        with tempfile.TemporaryDirectory() as place, chdir(place):
            for name, stage in million.STAGES.items():
                costs.setdefault(name, []).append(cost(stage, size, WIDTH))
            corpus = Passages.open(Path("corpus"))
            for name, build in {"words": build_words, "titles": build_mentions}.items():
                costs.setdefault(name, []).append(cost(build, corpus, Path(name), Path("work")))
    for name, seconds in costs.items():
        yield Curve("passages", name, sizes, seconds[1:])


def rollouts(params: Params) -> Iterator[Curve]:
    """Measure sampled rollouts against questions, group size and hops."""
    with open_setup(params, PLACES, FILTERED / "questions.jsonl") as setup:
        play_all(setup, 4, 2)
        sizes = [8, 16, 32, 64, 128]
        yield Curve("questions", "rollouts", sizes, [cost(play_all, setup, n, 4, times=2) for n in sizes])
        sizes = [2, 4, 8, 16, 32]
        yield Curve("group size", "rollouts", sizes, [cost(play_all, setup, 16, n, times=2) for n in sizes])
    seconds = []
    for count in HOPS:
        short = params.model_copy(update={"pipeline": params.pipeline.model_copy(update={"max_hops": count})})
        with open_setup(short, PLACES, FILTERED / "questions.jsonl") as setup:
            seconds.append(cost(play_all, setup, 32, 4, times=2))
    yield Curve("hops", "rollouts", HOPS, seconds)


def play_all(setup: Setup, questions: int, group: int) -> None:
    """Play ``group`` sampled rollouts of each of the first questions."""
    setup.policy.sampling = torch.Generator().manual_seed(0)
    repeated = [question for question in setup.questions[:questions] for _ in range(group)]
    play(repeated, setup.pipeline, setup.retriever, setup.generator)


def tokens(params: Params) -> Iterator[Curve]:
    """Measure texts of several lengths through the encoder, 32 at a time."""
    with open_setup(params, PLACES, FILTERED / "questions.jsonl") as setup:
        encoder = setup.policy.encoder
        sizes = [size for size in (16, 32, 64, 128, 256) if size <= encoder.max_tokens]
        seconds = [cost(encoder.encode, texts_of(size), times=3) for size in sizes]
        yield Curve("tokens", "encode", sizes, seconds)


def texts_of(size: int) -> Sequence[str]:
    """Return 32 texts of about so many tokens, special tokens included."""
    return [" ".join(["town"] * (size - 2))] * 32


def draw(curves: Sequence[Curve]) -> None:
    """Plot cost over size, both relative to the smallest, as SVG."""
    figure, axes = plt.subplots(figsize=(7, 4.5), layout="constrained")
    for curve in curves:
        relative = np.array(curve.sizes) / curve.sizes[0], np.array(curve.seconds) / curve.seconds[0]
        axes.loglog(*relative, marker="o", markersize=3, label=f"{curve.work} / {curve.axis} {curve.exponent:.2f}")
    axes.set(xlabel="times as large", ylabel="times as many CPU seconds")
    axes.legend(fontsize=8)
    figure.savefig(PLOT, metadata={"Date": None})


def main() -> None:
    """Measure, print a row per curve, and keep figures and plot."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth", description=__doc__)
    parser.add_argument("--largest", type=int, default=100_000, help="passages of the largest corpus")
    asked = parser.parse_args()
    params = Params.load()
    curves = []
    for measured in (tokens(params), rollouts(params), passages(asked.largest)):
        for curve in measured:
            points = ", ".join(f"{size:,}: {spent:.2f}" for size, spent in zip(curve.sizes, curve.seconds, strict=True))
            print(f"{curve.work} over {curve.axis}: exponent {curve.exponent:.2f} ({points} s)", flush=True)
            curves.append(curve)
    write_json(KEPT, [{**vars(curve), "exponent": round(curve.exponent, 3)} for curve in curves])
    draw(curves)


if __name__ == "__main__":
    main()
