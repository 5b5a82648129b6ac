"""No search of a batch changes what another one finds, and what is not there is excluded without a word."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from harr.builders.retrievers import Corpus
from harr.corpus.passages import Passages, write_passages
from harr.rag.policies.dense import DensePolicy
from harr.rag.retrieval.hybrid import DENSE, Fusion
from harr.serve.searcher import Ask, Searcher, Serving
from harr.types import Passage, Question, Retrieval, Search


class Stand:
    """A policy that says how deep it looked, as DensePolicy does: as deep as one of the searches needs."""

    pool = 10

    def __init__(self, fusion: Fusion) -> None:
        self.fusion = fusion
        self.excluded: list[frozenset[str]] = []

    def retrieve(self, searches: Sequence[Search]) -> list[Retrieval]:
        depth = max(self.pool, *(one.k for one in searches)) + max(len(one.exclude_ids) for one in searches)
        self.excluded += [one.exclude_ids for one in searches]
        return [Retrieval(passages=(), state=f"{one.query} {depth}") for one in searches]


def answered(folder: Path, policy: Stand, searches: Sequence[Search]) -> list[str]:
    write_passages([Passage("a", "text"), Passage("b", "text")], folder)
    searcher = Searcher(folder)
    searcher._corpus = cast(Corpus, SimpleNamespace(passages=Passages.open(folder)))
    model = cast(DensePolicy, policy)
    searcher.serving = Serving(model, lambda: model, False, "1", folder, 0.0)
    found: list[Any] = [answer.found for answer in searcher.answer([Ask("champion", one) for one in searches])]
    return [one.state for one in found]


def search(query: str, k: int = 0, exclude: Sequence[str] = ()) -> Search:
    return Search(Question("", query), query, (), frozenset(exclude), k=k)


def test_a_search_looks_as_deep_as_it_would_alone(tmp_path: Path) -> None:
    asked = [search("x"), search("y", 100), search("z", 3, ["a"]), search("w", 100)]
    sparse = answered(tmp_path, Stand(Fusion(0.0, 1.0)), asked)
    assert sparse == ["x 10", "y 100", "z 11", "w 100"]
    assert answered(tmp_path, Stand(DENSE), [search("x"), search("z", 3, ["a"])]) == ["x 11", "z 11"]  # one pass


def test_what_is_not_there_is_excluded_already(tmp_path: Path) -> None:
    policy = Stand(DENSE)
    answered(tmp_path, policy, [search("x", exclude=["a", "nowhere"])])
    assert policy.excluded == [frozenset({"a"})]
