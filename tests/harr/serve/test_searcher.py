"""A corpus that the stages remade is opened at the next load; a half-made one is left alone."""

import asyncio
import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml
from encyclopaedia import encyclopaedia
from indexed import index_world

from harr.arms import ARMS, TRAINED
from harr.builders.players import open_players
from harr.datasets.download import download
from harr.errors import IndexMismatch, ModelError
from harr.io.files import read_json
from harr.params import Params
from harr.params.download import FunctionDatasetParams
from harr.serve.bodies import SearchBody
from harr.serve.follower import Follower
from harr.serve.searcher import Ask, Searcher
from harr.serve.service import RetrieverService
from harr.types import Question, Search
from tasks.merge import export_arm
from tasks.paths import CORPUS, PLACES, QUESTIONS, RETRIEVER, WORK


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


def test_an_arm_that_searches_words_draws_nothing_and_leaves_vectors_to_the_base_encoder(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(shutil.copytree(project, tmp_path / "project"))
    export_arm(Params.load(), "bm25", Path("bm25"))
    searcher = Searcher(Path(), "float32")
    searcher.load(RETRIEVER, "1")
    search, scan = Search(Question("", "Who?"), "Who founded it?", k=3), searcher.serving.corpus
    [frozen, vector] = searcher.answer([Ask("frozen", search), Ask("frozen", "Acme")])
    with pytest.raises(ModelError, match=r"bm25 searches by words \(sparse\), and next to a model that searches by"):
        searcher.open_candidate(Path("bm25"), "2")
    searcher.load(Path("bm25"), "2")
    assert searcher.serving.corpus is not scan, "which has no words"
    best, drawn, still, text = searcher.answer(
        [Ask("champion", search), Ask("champion", search, 0), Ask("frozen", search), Ask("champion", "Query: Acme")]
    )
    assert best.found and drawn.found and (best.version, best.reads) == ("2", "")
    assert best.found.passages == drawn.found.passages and (drawn.found.pool, drawn.found.logprob) == ((), None)
    assert (still.version, still.reads) == ("base", "lines") and still.found.passages == frozen.found.passages
    assert best.found.passages != still.found.passages
    with open_players(Params.load(), PLACES, [], candidates="corpus") as player:
        own = player(ARMS["frozen"], None)
        np.testing.assert_allclose(text.vector, own.encode(["Query: Acme"])[0], atol=1e-5)
        assert best.found.passages == player(ARMS["bm25"], None).retrieve([search])[0].passages
    assert len(vector.vector) == len(text.vector)
    searcher.load(RETRIEVER, "1")
    assert searcher.answer([Ask("champion", search, 0)])[0].found.logprob is not None
    searcher.close()


def test_hops_that_no_training_had_are_named_in_the_answer_and_in_the_card(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(shutil.copytree(project, tmp_path / "project"))
    own = yaml.safe_load(Path("params.yaml").read_text())
    own |= {"pipeline": {"name": "pick", "picks": 1}, "generator": {"kind": "none"}, "reward": {"terms": {"mrr": 1.0}}}
    Path("params.yaml").write_text(yaml.safe_dump(own))
    export_arm(Params.load(), TRAINED, Path("single"))
    note = "single searches: it reads earlier ones, which no training showed it"
    assert f"| trained_on | {note} |" in Path("single/README.md").read_text()
    searcher = Searcher(Path(), "float32")
    service = RetrieverService(searcher, Follower("x", Path(), Path(), searcher.load), room=10)
    hop = {"query": "Who founded Acme?", "answer": "Ada Brown"}
    bodies = [{"query": "Where?", "hops": [hop]}, {"query": "Where?"}]
    bodies.append(bodies[0] | {"model": "frozen"})

    async def notes() -> list[str | None]:
        return [(await service.search(SearchBody.model_validate(body))).get("trained_on") for body in bodies]

    searcher.load(Path("single"), "1")
    assert asyncio.run(notes()) == [note, None, None]
    searcher.load(RETRIEVER, "2")
    assert asyncio.run(notes()) == [None, None, None], "it was trained on hops"
    service.close()


@pytest.mark.parametrize("arm", ["bm25", "hybrid"])
def test_a_search_by_an_arm_that_is_no_policy_does_not_open_the_base_encoder(
    arm: str, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its folder is all that a search needs: the machine may have no other model."""
    monkeypatch.chdir(shutil.copytree(project, tmp_path / "project"))
    export_arm(Params.load(), arm, Path("kept"))
    facts = read_json(Path("kept/harr.json"))
    monkeypatch.setattr("harr.builders.trained.read_json", lambda path: facts | {"base_model": "elsewhere"})
    searcher = Searcher(Path(), "float32")
    searcher.load(Path("kept"), "1")
    assert best(searcher)
    with pytest.raises(ModelError, match="elsewhere"):
        searcher.answer([Ask("champion", "Acme")])
    searcher.close()
