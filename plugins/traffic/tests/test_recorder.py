"""What a recorder keeps: every search with its chances, and what became of it."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
import torch
from harr_traffic.log import read_log
from starlette.testclient import TestClient

from harr.index.corpus import Corpus
from harr.rag.policies.dense import DensePolicy
from harr.rag.setup import Setup
from harr.serve.application import application
from harr.serve.follower import Follower
from harr.serve.searcher import Answer, Ask, Searcher, Serving
from harr.serve.service import RetrieverService
from harr.types import Question, Search


def client(policy: DensePolicy, settings: str) -> TestClient:
    searcher = Searcher(Path())
    corpus = cast(Corpus, SimpleNamespace(passages=policy.passages, index=policy.index, vectors=policy.vectors))
    greedy = replace(policy, sampling=None)
    searcher.serving = Serving(corpus, greedy, lambda: greedy, False, "", "7", Path(), 0.0)
    observers = [f"harr_traffic.recorder:Recorder={settings}"]
    service = RetrieverService(searcher, Follower("x", Path(), Path(), searcher.load), room=100, observers=observers)
    return TestClient(application(service), base_url="http://127.0.0.1")


def test_searches_and_what_became_of_them_are_kept(setup: Setup, tmp_path: Path) -> None:
    question = setup.questions[0].text
    with client(setup.retriever, f"{tmp_path},explore=1") as server:
        answers = [server.post("/search", json={"question": question, "k": 2}).json() for _ in range(20)]
        plain = server.post("/search", json={"question": question, "k": 2, "model": "frozen"}).json()
        ids = [one["id"] for one in answers]
        bodies = ({"score": 0.25}, {"accepted": True}, {"clicked": []}, {"clicked": ["a"], "accepted": False})
        for name, body in zip(ids, bodies, strict=False):
            assert server.post("/outcome", json={"id": name, **body}).json() == {"kept": True}
        for body in ({"id": ids[0]}, {"score": 1.0}, {"id": ids[0], "score": 1.5}, {"id": ids[0], "liked": 1}):
            assert server.post("/outcome", json=body).status_code == 422
    searches, outcomes = read_log(tmp_path)
    assert [one.id for one in searches] == [*ids, plain["id"]]
    assert [outcomes[name].score for name in ids[:4]] == [0.25, 1.0, 0.0, 0.0]
    for search, answer in zip(searches, answers, strict=False):
        assert search.chosen == tuple(one["id"] for one in answer["passages"]) == search.pool[:2]
        assert (search.version, search.reads, search.question) == ("7", "sep with history", question)
        assert len(search.pool) == 8 and search.logprob is not None and search.logprob < 0
    assert len({search.chosen for search in searches[:20]}) > 1, "explored searches are drawn"
    assert searches[20].logprob is None and searches[20].pool == ()


def test_a_folder_may_be_in_the_home_folder(setup: Setup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with client(setup.retriever, "~/traffic") as server:
        server.post("/search", json={"question": setup.questions[0].text})
    assert len(read_log(tmp_path / "traffic")[0]) == 1


def test_candidates_are_of_the_corpus_that_was_searched(
    setup: Setup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another corpus may be opened between the answer and its row in the log."""
    answer = Searcher.answer

    def answer_and_change(searcher: Searcher, asks: Sequence[Ask]) -> list[Answer]:
        answers = answer(searcher, asks)
        assert searcher.serving is not None
        other = cast(Corpus, SimpleNamespace(passages=SimpleNamespace(take=lambda rows: ())))
        searcher.serving = replace(searcher.serving, corpus=other)
        return answers

    monkeypatch.setattr(Searcher, "answer", answer_and_change)
    with client(setup.retriever, f"{tmp_path},explore=1") as server:
        server.post("/search", json={"question": setup.questions[0].text, "k": 2})
    [search] = read_log(tmp_path)[0]
    assert len(search.pool) == 8 and search.pool[:2] == search.chosen


def test_an_answer_does_not_depend_on_the_log(setup: Setup, tmp_path: Path) -> None:
    body = {"question": setup.questions[0].text}
    with client(setup.retriever, str(tmp_path / "log")) as server:
        (tmp_path / "log").rmdir()
        (tmp_path / "log").write_text("a file")
        answer = server.post("/search", json=body)
        assert answer.status_code == 200 and "id" not in answer.json()
        assert "log: " in json.dumps(server.get("/health").json())
        assert server.post("/outcome", json={"id": "x", "score": 1.0}).status_code == 503
        (tmp_path / "log").unlink()
        assert "id" in server.post("/search", json=body).json()
    assert len(read_log(tmp_path / "log")[0]) == 1


def test_first_ranks_that_are_kept_are_the_best(setup: Setup, tmp_path: Path) -> None:
    """The others are drawn, and the log-probability is theirs; a search of no more than those kept draws nothing."""
    best = setup.retriever.greedy()
    with client(setup.retriever, f"{tmp_path},explore=1,explore_after=2") as server:
        asked = [(one.text, k) for one in setup.questions for k in (2, 4)]
        answers = [server.post("/search", json={"question": text, "k": k}).json()["passages"] for text, k in asked]
    searches = read_log(tmp_path)[0]
    for (text, k), answer, one in zip(asked, answers, searches, strict=True):
        [found] = best.retrieve([Search(Question("", text), text, k=k)])
        ids = [passage.id for passage in found.passages]
        assert [passage["id"] for passage in answer[:2]] == ids[:2] == list(one.chosen[:2])
        assert (one.kept, len(one.pool)) == ((2, 8) if k == 4 else (0, 0))
        if k == 2:
            assert one.logprob is None
            continue
        rows = best.passages.rows_of(one.pool)
        pool_1N = np.array([[rows[name] for name in one.pool]])
        logits_N = best.logits(torch.from_numpy(best.encode([one.state])), torch.tensor([0]), pool_1N)[0].double()
        third, fourth = (float(logits_N[rank:].log_softmax(-1)[0]) for rank in (2, 3))
        assert one.logprob == pytest.approx(third + fourth, abs=1e-3)
    drawn = {one.question: one.chosen for one in searches if one.pool}
    greedy = best.retrieve([Search(Question("", text), text, k=4) for text in drawn])
    assert any(tuple(p.id for p in own.passages) != drawn[text] for own, text in zip(greedy, drawn, strict=True))
