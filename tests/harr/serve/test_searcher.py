"""A corpus that the stages made anew is opened with the next load, and what is half made is left alone."""

import shutil
from pathlib import Path

import pytest
from encyclopaedia import encyclopaedia
from indexed import index_world

from harr.datasets.download import download
from harr.errors import IndexMismatch
from harr.params import Params
from harr.params.download import FunctionDatasetParams
from harr.serve.searcher import Ask, Searcher
from harr.types import Question, Search
from tasks.paths import CORPUS, QUESTIONS, RETRIEVER, WORK


def best(searcher: Searcher) -> list[str]:
    [answer] = searcher.answer([Ask("champion", Search(Question("", "Who?"), "Who founded it?"))])
    assert answer.found
    return [passage.id for passage in answer.found.passages]


def test_another_corpus_is_opened_with_the_next_load(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(shutil.copytree(project, tmp_path / "project"))
    searcher = Searcher(Path(), "float32")
    searcher.load(RETRIEVER, "1")
    before, opened = best(searcher), searcher.serving.corpus
    searcher.load(RETRIEVER, "2")
    assert not searcher.has_changed() and searcher.serving.corpus is opened, "the same corpus stays open"
    section = FunctionDatasetParams(**encyclopaedia(passages=210, train_questions=12, test_questions=12, hops=[2]))
    larger = Params.load().model_copy(update={"download": section})
    download(larger.download, CORPUS, QUESTIONS, WORK / "download")
    assert searcher.has_changed()
    with pytest.raises(IndexMismatch):
        searcher.load(RETRIEVER, "3")
    assert best(searcher) == before and searcher.has_changed()
    index_world(larger)
    searcher.load(RETRIEVER, "3")
    after = best(searcher)
    assert after != before and not searcher.has_changed() and searcher.serving.corpus is not opened
    (CORPUS / "manifest.json").unlink()
    assert not searcher.has_changed(), "a stage is at work"
    searcher.load(RETRIEVER, "4")
    assert best(searcher) == after
    searcher.close()
