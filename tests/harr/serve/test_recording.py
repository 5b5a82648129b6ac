"""What `harr serve --log` keeps: every search with its chances, and what became of it."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from starlette.testclient import TestClient

from harr.builders.retrievers import Corpus
from harr.rag.policies.dense import DensePolicy
from harr.rag.setup import Setup
from harr.serve.application import application
from harr.serve.follower import Follower
from harr.serve.searcher import Searcher, Serving
from harr.serve.service import RetrieverService
from harr.traffic.log import Recording, read_log


def client(policy: DensePolicy, recording: Recording | None) -> TestClient:
    searcher = Searcher(Path())
    corpus = cast(Corpus, SimpleNamespace(passages=policy.passages, index=policy.index, vectors=policy.vectors))
    greedy = replace(policy, sampling=None)
    searcher.serving = Serving(corpus, greedy, lambda: greedy, False, "7", Path(), 0.0)
    service = RetrieverService(searcher, Follower("x", Path(), Path(), searcher.load), room=100, recording=recording)
    return TestClient(application(service), base_url="http://127.0.0.1")


def test_searches_and_what_became_of_them_are_kept(setup: Setup, tmp_path: Path) -> None:
    question = setup.questions[0].text
    with client(setup.retriever, Recording(tmp_path, explore=1.0)) as server:
        told = [server.post("/search", json={"question": question, "k": 2}).json() for _ in range(20)]
        plain = server.post("/search", json={"question": question, "k": 2, "model": "frozen"}).json()
        ids = [one["id"] for one in told]
        bodies = ({"score": 0.25}, {"accepted": True}, {"clicked": []}, {"clicked": ["a"], "accepted": False})
        for name, body in zip(ids, bodies, strict=False):
            assert server.post("/outcome", json={"id": name, **body}).json() == {"kept": True}
        for body in ({"id": ids[0]}, {"score": 1.0}, {"id": ids[0], "score": 1.5}, {"id": ids[0], "liked": 1}):
            assert server.post("/outcome", json=body).status_code == 422
    searches, outcomes = read_log(tmp_path)
    assert [one.id for one in searches] == [*ids, plain["id"]]
    assert [outcomes[name].score for name in ids[:4]] == [0.25, 1.0, 0.0, 0.0]
    for search, answer in zip(searches, told, strict=False):
        assert search.chosen == tuple(one["id"] for one in answer["passages"]) == search.pool[:2]
        assert (search.version, search.reads, search.question) == ("7", "sep with history", question)
        assert len(search.pool) == 8 and search.logprob is not None and search.logprob < 0
    assert len({search.chosen for search in searches[:20]}) > 1, "explored searches are drawn"
    assert searches[20].logprob is None and searches[20].pool == ()


@pytest.mark.parametrize("kept", [True, False])
def test_without_exploring_the_best_is_taken(setup: Setup, tmp_path: Path, kept: bool) -> None:
    with client(setup.retriever, Recording(tmp_path) if kept else None) as server:
        told = [server.post("/search", json={"question": setup.questions[0].text}).json() for _ in range(3)]
        outcome = server.post("/outcome", json={"id": "x", "score": 1})
    assert len({str(one["passages"]) for one in told}) == 1 and all(("id" in one) == kept for one in told)
    assert outcome.status_code == (200 if kept else 422)
    assert kept or "keeps no log" in outcome.json()["error"]
