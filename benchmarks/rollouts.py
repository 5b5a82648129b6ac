"""Lockstep rollouts against one question at a time, in the same run: `python -m benchmarks.rollouts`.

Needs the stages download, embed and index (`dvc repro index`). Prints seconds and the ratio; the
answers of both ways must be the same.
"""

import time
from collections.abc import Mapping, Sequence

from harr.arms import ARMS
from harr.builders.generators import build_generator
from harr.builders.pipeline import build_pipeline
from harr.builders.players import open_players
from harr.corpus.passages import read_questions
from harr.errors import ParamsError
from harr.params import Params
from harr.rag.generation.cache import CachedGenerator
from harr.rag.rollout import play
from harr.types import Generate, Generator
from tasks.paths import PLACES, QUESTIONS

COUNT = 256


class Counted:
    """A generator that counts its batches."""

    def __init__(self, generator: Generator) -> None:
        self.generator, self.batches = generator, 0

    def complete(self, requests: Sequence[Generate]) -> list[str]:
        """One more batch."""
        self.batches += 1
        return self.generator.complete(requests)

    def usage(self) -> Mapping[str, float]:
        """That of the counted generator."""
        return self.generator.usage()


def main() -> None:
    """Play the same questions both ways with the untrained retriever that sees the history."""
    params = Params.load()
    questions = read_questions(QUESTIONS / "test.jsonl")[:COUNT]
    pipeline = build_pipeline(params.pipeline, params.generator, PLACES)
    own = build_generator(params.generator, params.seed, PLACES)
    if isinstance(own, CachedGenerator):
        own = own.generator  # what is remembered would be no measure
    if own is None:
        raise ParamsError("generator.kind: none has no batches to count; use a recipe with a generator")
    with open_players(params, PLACES, questions, candidates="corpus") as player:
        retriever, generator = player(ARMS["history"], None), Counted(own)
        play(questions[:4], pipeline, retriever, generator)
        generator.batches, began = 0, time.perf_counter()
        together = play(questions, pipeline, retriever, generator)
        batched, batches = time.perf_counter() - began, generator.batches
        rounds = max(len(episode.steps) for episode in together) + 1
        began = time.perf_counter()
        alone = [play([question], pipeline, retriever, generator)[0] for question in questions]
        single = time.perf_counter() - began
    same = sum(a.answer == b.answer for a, b in zip(together, alone, strict=True))
    ratio = single / batched
    print(f"{len(questions)} questions: lockstep {batched:.2f} s, one at a time {single:.2f} s, ratio {ratio:.1f}")
    print(f"generator batches: {batches} for {rounds} rounds (at most {2 * rounds}); equal answers: {same}")


if __name__ == "__main__":
    main()
