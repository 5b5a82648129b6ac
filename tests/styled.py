"""LeReT without a model: a writer of queries that continues the style it is shown, and a word-based search engine."""

import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harr_encyclopaedia.query_styles import STYLES, query
from harr_encyclopaedia.traces import Reader, open_world

from harr.params.filter import PreferencesParams
from harr.preferences.collect import sample_preferences
from harr.rag.pipelines.leret import LeReT
from harr.rag.scoring.reward import Reward
from harr.rag.setup import Setup
from harr.types import Generate, Passage, Question, Retrieval, Search

SMALL = {"pool": 8, "validation": 4, "candidates": 6, "held_out": 0.3}
DOCUMENT = re.compile(r"^Doc \d+\(Title: (.*?)\) ([A-Z].*)$", re.MULTILINE)


class Styled:
    """Repeats the question zero-shot, copies the style of a demonstration, and writes in any style when warm."""

    def __init__(self, temperature: float) -> None:
        self.temperature = temperature

    def complete(self, requests: Sequence[Generate]) -> list[str]:
        return [f" {self._query(request.prompt)}" for request in requests]

    def usage(self) -> dict[str, float]:
        return {}

    def _query(self, prompt: str) -> str:
        *shown, asked = prompt.split("\n\n")
        style = random.Random(prompt).choice(tuple(STYLES)) if self.temperature >= 1 else "question"
        for example in shown[:1]:
            head, _, example_query = example.rpartition("Query: ")
            style = next(name for name in STYLES if query(*self._read(head), name) == example_query)
        return query(*self._read(asked), style)

    @staticmethod
    def _read(text: str) -> tuple[str, list[Passage]]:
        question = text.partition("Question: ")[2].partition("\n")[0]
        return question, [Passage(str(place), *reversed(found)) for place, found in enumerate(DOCUMENT.findall(text))]


class Words:
    """Ranks the passages of a small world by words shared with the query; those of titles count three times."""

    def __init__(self, reader: Reader, fails_at: int = 0) -> None:
        self.passages, self.calls, self.fails_at = sorted(reader.passages.values(), key=lambda p: p.id), 0, fails_at

    def retrieve(self, searches: Sequence[Search]) -> list[Retrieval]:
        """Return three passages per search; the server is down at call number ``fails_at``."""
        from harr.errors import ServiceUnavailable

        self.calls += 1
        if self.calls == self.fails_at:
            raise ServiceUnavailable("Milvus at http://127.0.0.1:19530 did not answer; start it and run again")
        return [self._best(set(re.findall(r"\w+", search.query))) for search in searches]

    def _best(self, wanted: set[str]) -> Retrieval:
        def score(passage: Passage) -> int:
            return 3 * len(wanted & {*re.findall(r"\w+", passage.title)}) + len(wanted & {*passage.text.split()})

        best = sorted(self.passages, key=lambda passage: (-score(passage), passage.id))[:3]
        return Retrieval(tuple(best), scores=tuple(float(score(passage)) for passage in best))


def setup_of(world: Reader, retriever: Any = None, questions: Sequence[Question] = ()) -> Setup:
    """Return the game of a small world."""
    program, asked = LeReT(2, template="bare"), questions or world.questions
    return Setup(asked, program, retriever or Words(world), None, Reward({"recall": 1.0}), "world", index="index-1")


def sampled(out: Path, seed: int = 0, **changes: Any) -> dict[str, float]:
    """Write a folder of preferences from a small world, or a part of them."""
    setup, params = setup_of(open_world(3, hops=(2,))), PreferencesParams(**{**SMALL, **changes})
    return sample_preferences(params, setup, Styled, out, out.with_name("work"), lambda step, row: None, seed)
