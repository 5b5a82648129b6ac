"""A corpus that the stages made anew is opened with the next look, and what is half made is left alone."""

from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from harr.builders.retrievers import Corpus
from harr.errors import IndexMismatch
from harr.rag.policies.dense import DensePolicy
from harr.serve import searcher as module
from harr.serve.searcher import Ask, Searcher
from harr.types import Question, Retrieval, Search


class Stand:
    """A policy over a corpus that tells which one it is."""

    style, history = "sep", True

    def __init__(self, name: str) -> None:
        self.name = name

    def retrieve(self, searches: Any) -> list[Retrieval]:
        return [Retrieval(passages=(), state=self.name) for _ in searches]


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Searcher, list[str]]:
    """A searcher over folders whose manifests tell a name, and the names of the corpora that it closed."""
    closed: list[str] = []

    def opened(self: Searcher, section: Any, held: ExitStack) -> Corpus:
        corpus, vectors = ((tmp_path / "data" / one / "manifest.json").read_text() for one in ("corpus", "vectors"))
        if corpus != vectors:
            raise IndexMismatch("the vectors are of another corpus")
        held.callback(closed.append, corpus)
        return cast(Corpus, SimpleNamespace(name=corpus, index=SimpleNamespace(rows=7), vectors=SimpleNamespace()))

    def policy(facts: Any, section: Any, folder: Path, corpus: Any, project: Path) -> DensePolicy:
        return cast(DensePolicy, Stand(corpus.name))

    monkeypatch.setattr(Searcher, "_open", opened)
    monkeypatch.setattr(Searcher, "_cast", lambda self, policy: policy)
    monkeypatch.setattr(module, "read_facts", lambda folder: ({"statuses": False}, None))
    monkeypatch.setattr(module, "trained_policy", policy)
    write(tmp_path, "corpus", "one")
    write(tmp_path, "vectors", "one")
    return Searcher(tmp_path), closed


def write(project: Path, stage: str, name: str) -> None:
    (project / "data" / stage).mkdir(parents=True, exist_ok=True)
    (project / "data" / stage / "manifest.json").write_text(name)


def state(searcher: Searcher) -> str:
    [answer] = searcher.answer([Ask("champion", Search(Question("", "x"), "x"))])
    assert answer.found
    return answer.found.state


def test_another_corpus_is_opened_with_the_next_load(tmp_path: Path, made: tuple[Searcher, list[str]]) -> None:
    searcher, closed = made
    searcher.load(tmp_path, "1")
    assert state(searcher) == "one" and not searcher.changed()
    searcher.load(tmp_path, "2")
    assert closed == []  # the same corpus stays open
    write(tmp_path, "corpus", "two")
    assert searcher.changed()
    with pytest.raises(IndexMismatch):
        searcher.load(tmp_path, "2")
    assert state(searcher) == "one" and closed == [] and searcher.changed()
    write(tmp_path, "vectors", "two")
    searcher.load(tmp_path, "2")
    assert state(searcher) == "two" and closed == ["one"] and not searcher.changed()
    (tmp_path / "data/corpus/manifest.json").unlink()
    assert not searcher.changed()  # a stage is at work
    searcher.load(tmp_path, "3")
    assert state(searcher) == "two" and closed == ["one"]
    searcher.close()
    assert closed == ["one", "two"]
