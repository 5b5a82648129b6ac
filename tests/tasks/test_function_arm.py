"""Untrained arms: from another package, with another encoder, reranked; and samples.

A run with the retriever of docs/arms.md is in test_stages.py.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from serving import serving
from stages import ROOT, SMOKE, nothing, world_params
from token_table import save_table

from harr.builders.players import open_players
from harr.corpus.passages import Passages, read_questions
from harr.corpus.vectors import Vectors
from harr.embed.encoder import Encoder
from harr.errors import ParamsError
from harr.io.files import write_text
from harr.params import Params
from harr.types import Episode
from tasks.paths import CORPUS, PLACES, QUESTIONS, VECTORS
from tasks.play import play_arms, with_arms
from tasks.trained_runs import trained_runs

OTHER = "harr_bridge.other_encoder:OtherEncoder"
ROCCHIO = {"name": "moved", "retriever": "own_retriever:Rocchio", "settings": {"weight": 0.5, "passages": 1}}
BACKWARDS = {"name": "backwards", "retriever": "by_hand:Backwards"}
STATIC = {"name": "static", "retriever": OTHER, "settings": {"model": "static"}}


def params(tiny: str, *arms: Any, **evaluate: Any) -> Params:
    section = {"arms": [*arms], "seeds": 1, "resamples": 50, "candidates": ["corpus"], **evaluate}
    return world_params(tiny, evaluate=section)


def play(run: Params) -> dict[str, list[Episode]]:
    return play_arms(run, read_questions(QUESTIONS / "test.jsonl"), nothing, model=None)[1]


def first(episodes: list[Episode]) -> list[tuple[str, ...]]:
    return [tuple(p.id for p in episode.steps[0].retrieval.passages) for episode in episodes]


@pytest.fixture
def example(place: Path) -> Path:
    """A module of examples/, importable."""
    write_text(Path("own_retriever.py"), (ROOT / "examples/own_retriever.py").read_text())
    return place


def test_retrievers_of_another_package_and_of_another_encoder_rank_as_they_say(example: Path, tiny: str) -> None:
    """The example moves the query half-way to its nearest passage; the token table ranks by its own vectors."""
    run, asked = params(tiny, "frozen", ROCCHIO, STATIC), read_questions(QUESTIONS / "test.jsonl")
    save_table(Path("static"), 48)
    rows, episodes = play_arms(run, asked, nothing, model=None)
    assert all(len(by_seed) == 1 and len(by_seed[0]) == 12 for by_seed in rows.values())
    passages, table_ND = Passages.open(CORPUS), Vectors.open(VECTORS).take(np.arange(200))
    ours, other = Encoder(tiny, max_tokens=64), Encoder("static", max_tokens=256)
    for step in (episode.steps[0] for episode in episodes["moved"]):
        query_D = ours.encode([step.search.query])[0]
        near = int((table_ND @ query_D).argmax())
        best_N = np.argsort(-(table_ND @ (query_D + table_ND[near])))[: run.retriever.k]
        assert [p.id for p in step.retrieval.passages] == [p.id for p in passages.take(best_N.tolist())]
    table_ND = other.encode(passages.contents(0, 200))
    for step in (step for one in episodes["static"] for step in one.steps):
        scores_N = table_ND @ other.encode([step.search.query])[0]
        excluded = list(passages.rows_of(step.search.exclude_ids).values())
        best_K = [row for row in np.argsort(-scores_N, kind="stable") if row not in excluded][: run.retriever.k]
        assert [p.id for p in step.retrieval.passages] == [p.id for p in passages.take(best_K)]
        assert step.retrieval.scores == pytest.approx(scores_N[best_K].tolist(), abs=1e-5)


def test_a_reranker_takes_the_best_of_the_pool(place: Path, tiny: str) -> None:
    """Scored by length, the reranker takes the longest of the pool; another package's arm may take the last ones."""

    def by_length(body: dict[str, Any], number: int) -> tuple[int, Any]:
        return 200, {"results": [{"index": i, "relevance_score": len(t)} for i, t in enumerate(body["documents"])]}

    with serving(by_length) as served:
        settings = {"server": {"urls": [served.base_url]}, "model": "m"}
        rerank = {"name": "rerank", "retriever": "harr_rerankers.reranked:rerank", "settings": settings}
        run = params(tiny, "frozen", rerank, BACKWARDS)
        episodes = play(run)
    step = episodes["rerank"][0].steps[0]
    pool = next(body["documents"] for body in served.bodies if body["query"] == step.search.query)
    assert len(pool) == run.retriever.pool
    assert [p.content for p in step.retrieval.passages] == sorted(pool, key=len, reverse=True)[: run.retriever.k]
    found = episodes["backwards"][0].steps[0].retrieval.passages
    assert [p.content for p in found] == pool[: -run.retriever.k - 1 : -1], "the last of the pool of its base"


def test_where_the_language_model_learns_an_arm_differs_from_the_baseline_in_the_retriever_alone(
    example: Path, tiny: str
) -> None:
    agent = yaml.safe_load((ROOT / "recipes/agent_small.yaml").read_text())
    encoder = {"model": tiny, "max_tokens": 64}
    run = Params.model_validate(agent | {"encoder": encoder, "evaluate": {"arms": ["base", ROCCHIO, "trained"]}})
    arms = run.evaluate.arm_table
    with open_players(run, PLACES, [], candidates="corpus") as player:
        assert type(player(arms["moved"], None)).__module__ == "own_retriever"
        assert type(player(arms["base"], None)).__module__ != "own_retriever"
    assert not arms["moved"].untaught and "moved" not in trained_runs(run)


def test_what_does_not_fit_is_one_line_before_anything_is_played(example: Path, tiny: str) -> None:
    arms: dict[str, dict[str, Any]] = {
        r"evaluate\.arms: settings of OtherEncoder: unknown parameter weight": ROCCHIO | {"retriever": OTHER},
        r"evaluate\.arms: own_retriever:Nobody cannot be imported": ROCCHIO | {"retriever": "own_retriever:Nobody"},
        r"evaluate\.arms: builtins:repr makes str without a method retrieve": ROCCHIO | {"retriever": "builtins:repr"},
    }
    for line, arm in arms.items():
        with pytest.raises(ParamsError, match=line) as error:
            play(params(tiny, arm))
        lines = str(error.value).splitlines()
        assert len(lines) <= 2 and all(one.startswith("evaluate.arms: ") for one in lines), "one for each fault"
    with pytest.raises(ParamsError, match=r"--arms his: evaluate\.arms\.0: should be 'bm25'"):
        with_arms(params(tiny, "frozen", ROCCHIO), ["his"])


def test_a_wrong_arm_is_one_line(tmp_path: Path) -> None:
    wrong: dict[str, dict[str, Any]] = {
        r"evaluate\.arms\.0\.name: ": {"arms": [ROCCHIO | {"name": "../mine"}]},
        r"evaluate\.arms\.0: arm mine: give one of retriever, method and player": {"arms": [{"name": "mine"}]},
        r"unknown parameter evaluate\.arms\.0\.retrievr; did you mean retriever\?": {
            "arms": [ROCCHIO | {"retrievr": "x"}]
        },
        r"evaluate\.arms\.1: ": {"arms": ["frozen", 3]},
    }
    path = tmp_path / "params.yaml"
    for line, section in wrong.items():
        path.write_text(yaml.safe_dump(SMOKE | {"evaluate": section}))
        with pytest.raises(ParamsError, match=line) as error:
            Params.load(path)
        assert "\n" not in str(error.value)
