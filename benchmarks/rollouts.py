"""Lockstep rollouts against one question at a time, in the same run: `python -m benchmarks.rollouts`.

Needs the stages download, embed and index (`dvc repro index`). Prints seconds and the ratio; the
answers of both ways must be the same.
"""

import time
from pathlib import Path

from harr.build import build_generator, build_pipeline, open_arms
from harr.corpus.store import read_questions
from harr.params import Params
from harr.rollout import play

COUNT = 64


def main() -> None:
    """Play the same questions both ways with the untrained retriever that sees the history."""
    params = Params.load()
    questions = read_questions(Path("data/questions/test.jsonl"))[:COUNT]
    pipeline, generator = build_pipeline(params), build_generator(params)
    with open_arms(params, questions, arms=["history"], adapter=None, model=None, candidates="corpus") as arms:
        retriever = arms["history"]
        play(questions[:4], pipeline, retriever, generator)
        began = time.perf_counter()
        together = play(questions, pipeline, retriever, generator)
        batched = time.perf_counter() - began
        began = time.perf_counter()
        alone = [play([question], pipeline, retriever, generator)[0] for question in questions]
        single = time.perf_counter() - began
    same = sum(a.answer == b.answer for a, b in zip(together, alone, strict=True))
    ratio = single / batched
    print(f"{len(questions)} questions: lockstep {batched:.2f} s, one at a time {single:.2f} s, ratio {ratio:.1f}")
    print(f"equal answers: {same} of {len(questions)}")


if __name__ == "__main__":
    main()
