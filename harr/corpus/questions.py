"""Data sets by name: a section of params.yaml becomes a stream of passages and two streams of questions."""

from collections.abc import Callable, Iterator
from pathlib import Path

from harr.corpus.haystack import babilong, ruler
from harr.corpus.hub import hotpotqa, hover, musique, nq, two_wiki
from harr.corpus.jsonl import passage_of, read_questions_where, read_rows
from harr.corpus.medquad import medquad
from harr.corpus.source import Source
from harr.corpus.world import make_world
from harr.datasets import Jsonl, World
from harr.types import Passage


def world(params: World) -> Source:
    """The fictional encyclopaedia; training and test questions never share a chain."""
    made = make_world(params.passages, params.seed)
    return Source(
        passages=made.passages(sources=params.sources),
        train=made.questions("train", params.train_questions, params.hops),
        test=made.questions("test", params.test_questions, params.hops),
    )


def jsonl(params: Jsonl) -> Source:
    """Local files; ``searchable_where`` keeps the other passages out of the index."""
    held_back: set[str] = set()

    def passages() -> Iterator[Passage]:
        for path in params.passages:
            for row in read_rows(Path(path)):
                if row.matches(params.passages_where):
                    passage = passage_of(row)
                    if not row.matches(params.searchable_where):
                        held_back.add(passage.id)
                    yield passage

    return Source(
        passages=passages(),
        train=read_questions_where(params.train, params.train_where, params.train_questions),
        test=read_questions_where(params.test, params.test_where, params.test_questions),
        searchable=lambda passage: passage.id not in held_back,
    )


DATASETS: dict[str, Callable[..., Source]] = {
    "world": world,
    "jsonl": jsonl,
    "hotpotqa": hotpotqa,
    "2wikimultihopqa": two_wiki,
    "musique": musique,
    "nq": nq,
    "hover": hover,
    "medquad": medquad,
    "babilong": babilong,
    "ruler": ruler,
}
