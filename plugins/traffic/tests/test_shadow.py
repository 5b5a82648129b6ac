"""A candidate in the shadow of a served retriever: what it would have found is logged, and nobody waits for it."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from harr_traffic import shadow as shadows
from harr_traffic.log import read_log
from harr_traffic.shadows import read_shadows
from projects import make_project, train_stand_in
from servers import until
from starlette.testclient import TestClient

from harr.builders.trained import TrainedRetriever
from harr.corpus.passages import read_questions
from harr.errors import HarrError, IndexMismatch, ModelError, ParamsError
from harr.rag.policies import plackett_luce
from harr.serve.application import application
from harr.serve.follower import Follower
from harr.serve.searcher import Searcher
from harr.serve.service import RetrieverService
from harr.types import Hop
from tasks.paths import QUESTIONS, RETRIEVER

HOPS = [{"query": "Who founded it?", "answer": "Ada Brown"}]
SECOND = Path("second")
NAME = "harr_traffic.shadow:Shadow"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with two retrievers over one index, neither of which weighs links."""
    folder = tmp_path_factory.mktemp("project")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        make_project(links=False)
        train_stand_in(0.6)
        shutil.copytree(RETRIEVER, SECOND)
        train_stand_in(0.3)
    return folder


@pytest.fixture
def project(made: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(made)
    return made


@contextmanager
def served(
    log: Path, shadow: Path, explore: float = 0.0, explore_after: int = 0
) -> Iterator[tuple[TestClient, RetrieverService]]:
    """The server of a project's retriever, with another one in its shadow."""
    searcher = Searcher(Path(), "float32")
    follower = Follower(str(RETRIEVER), Path(), Path("cache"), searcher.load, searcher.has_changed)
    follower.start()
    recorder = f"harr_traffic.recorder:Recorder={log},explore={explore},explore_after={explore_after}"
    service = RetrieverService(searcher, follower, room=100, observers=[recorder, f"{NAME}={shadow}"])
    with TestClient(application(service), base_url="http://127.0.0.1") as client:
        yield client, service


def bodies(project: Path) -> list[dict[str, Any]]:
    asked = [one.text for one in read_questions(project / QUESTIONS / "test.jsonl")]
    later = [{"question": text, "hops": HOPS, "query": "Where was she born?", "k": 3} for text in asked]
    return [{"question": text} for text in asked] + later


def health(service: RetrieverService) -> dict[str, Any]:
    """What the server says of its shadow."""
    [_, state] = service.health()["observers"].values()
    found: dict[str, Any] = state
    return found


def test_it_ranks_what_the_candidate_would_find(project: Path, tmp_path: Path) -> None:
    with served(tmp_path, SECOND) as (client, _):
        answers = [client.post("/search", json=body).json() for body in bodies(project)]
        frozen = client.post("/search", json={"question": "Who?", "model": "frozen"}).json()
    ranked = {one.id: one for one in read_shadows(tmp_path)}
    assert set(ranked) == {one["id"] for one in answers}, "all that the champion answered, at the latest before the end"
    assert frozen["id"] not in ranked
    with TrainedRetriever.load(SECOND, index=project) as candidate:
        for body, one in zip(bodies(project), answers, strict=True):
            session = candidate.session(body["question"])
            session.hops += [Hop(**hop) for hop in body.get("hops", ())]
            found = session.search(body.get("query", ""), k=body.get("k", 0))
            assert ranked[one["id"]].chosen == tuple(passage.id for passage in found)
    assert any(ranked[one["id"]].chosen != tuple(p["id"] for p in one["passages"]) for one in answers)
    assert {one.logprob for one in ranked.values()} == {None}


@pytest.mark.parametrize("kept", [0, 1])
def test_what_was_drawn_is_weighed_as_replay_weighs_it(project: Path, tmp_path: Path, kept: int) -> None:
    with served(tmp_path, SECOND, explore=1.0, explore_after=kept) as (client, service):
        for body in bodies(project):
            client.post("/search", json=body)
        assert until(lambda: health(service)["ranked"] == len(bodies(project)))
    searches, ranked = read_log(tmp_path)[0], {one.id: one for one in read_shadows(tmp_path)}
    apart = []
    with TrainedRetriever.load(SECOND, index=project) as candidate:
        policy = candidate.policy
        for one in searches:
            rows = policy.passages.rows_of(one.pool)
            pool_1N = np.array([[rows[name] for name in one.pool]])
            logits_1N = policy.logits(torch.from_numpy(policy.encode([one.state])), torch.tensor([0]), pool_1N)
            wanted = plackett_luce.log_prob(logits_1N.double(), torch.tensor([len(one.chosen)]), torch.tensor([kept]))
            assert one.kept == kept < len(one.chosen)
            # the sum of five logits over a small temperature: float32 in other batches differs in the third digit
            assert ranked[one.id].logprob == pytest.approx(wanted.item(), abs=5e-3)
            apart.append(abs((one.logprob or 0.0) - wanted.item()))
    assert max(apart) > 0.1, "the one that answers drew by other chances"


def test_answers_go_first_and_a_candidate_that_has_no_room_or_fails_hinders_none(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shadows, "ROOM", 3)
    with served(tmp_path, SECOND) as (client, service):
        monkeypatch.setattr(type(service.batches), "idle", False)
        for body in bodies(project)[:5]:
            assert client.post("/search", json=body).status_code == 200
        state = health(service)
        assert (state["ranked"], state["waiting"], state["left_out"]) == (0, 3, 2)
    assert [one.id for one in read_shadows(tmp_path)] == [one.id for one in read_log(tmp_path)[0]][2:]

    with served(tmp_path / "changed", SECOND) as (client, service):
        monkeypatch.setattr(type(service.batches), "idle", False)
        client.post("/search", json=bodies(project)[0])
        _, shadow = service.observers.values()
        assert isinstance(shadow, shadows.Shadow) and service.searcher.serving and shadow.serving
        other = replace(service.searcher.serving.corpus)
        service.searcher.serving = replace(service.searcher.serving, corpus=other)
        shadow.serving = replace(shadow.serving, corpus=other)
        client.post("/search", json=bodies(project)[1])
    assert [one.id for one in read_shadows(tmp_path / "changed")] == [read_log(tmp_path / "changed")[0][1].id], (
        "the first was answered from a corpus that the candidate does not search"
    )

    def broken(*_: object) -> int:
        raise RuntimeError("no memory\nleft")

    monkeypatch.setattr(type(service.batches), "idle", True)
    monkeypatch.setattr(shadows.Shadow, "_rank", broken)
    with served(tmp_path / "other", SECOND) as (client, service):
        assert client.post("/search", json=bodies(project)[0]).status_code == 200
        assert until(lambda: bool(health(service)["problem"]))
        state = health(service)
        assert state["problem"] == "RuntimeError: no memory left" and state["left_out"] == 1
    assert read_shadows(tmp_path / "other") == []


def test_a_candidate_that_cannot_search_this_corpus_is_refused(project: Path, tmp_path: Path) -> None:
    cases: list[tuple[dict[str, Any], type[HarrError], str]] = [
        ({"documents": "another encoder"}, IndexMismatch, "reads states for vectors of encoder another encoder"),
        ({"retriever": {"search": "hybrid"}}, ModelError, "searches by words .* no words are open"),
        ({"format": 0}, ModelError, "has format 0"),
        ({}, ModelError, "no folder of stage merge"),
    ]
    for number, (change, error, message) in enumerate(cases):
        other = tmp_path / str(number)
        if change:
            shutil.copytree(SECOND, other)
            facts = json.loads((other / "harr.json").read_text())
            facts |= {name: facts[name] | own if isinstance(own, dict) else own for name, own in change.items()}
            (other / "harr.json").write_text(json.dumps(facts))
        with pytest.raises(error, match=message) as refused, served(tmp_path / "log", other):
            pass
        assert "\n" not in str(refused.value)


def test_it_needs_a_log(project: Path) -> None:
    searcher = Searcher(Path(), "float32")
    follower = Follower(str(RETRIEVER), Path(), Path("cache"), searcher.load)
    with pytest.raises(ParamsError, match="name a log before it"):
        RetrieverService(searcher, follower, room=100, observers=[f"{NAME}={SECOND}"])
