"""The term relevance: a real HTTP server that speaks /rerank, or a cross-encoder loaded here."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from sentence_transformers import CrossEncoder
from serving import serving

from harr.builders.pipeline import build_reward
from harr.errors import ModelError, ParamsError, ServiceUnavailable
from harr.params import Params
from harr.params.reward import RerankerParams
from harr.rag.scoring.reranker import open_reranker
from harr.rag.scoring.reward import Reward
from harr.types import Episode, Hop, Outcome, Passage, Question, Retrieval, Search, Step
from tasks.paths import PLACES

GOOD = yaml.safe_load((Path(__file__).parents[4] / "params.yaml").read_text())
QUESTION = Question("q", "Where was the founder of Acme born?", ("Bath",))
SCORES = {"Acme: founded by Ada": 0.5, "Ada: born in Bath": 1.0, "Bath: a town": 0.25}


def reward(base_url: str, **terms: float) -> Reward:
    reranker = {"server": {"name": "ranker", "urls": [base_url], "deadline_seconds": 0.1}, "model": "small"}
    section = {"terms": terms or {"relevance": 1.0}, "reranker": reranker}
    params = Params.model_validate(GOOD | {"reward": section})
    return build_reward(params.reward, params.encoder, params.seed, PLACES)


def played(*found: tuple[str, tuple[str, ...]]) -> Episode:
    """Make an episode of one step per query, with passages of these contents."""
    steps = [
        Step(Search(QUESTION, query), Retrieval(tuple(Passage(text, text) for text in texts))) for query, texts in found
    ]
    return Episode(QUESTION, tuple(steps), Outcome("Bath", tuple(Hop(query, "", "FOUND") for query, _ in found)))


def ranked(body: dict[str, Any], number: int) -> tuple[int, Any]:
    """Return the documents' scores, best first, as vLLM sends them."""
    rows = [{"index": i, "relevance_score": SCORES[text]} for i, text in enumerate(body["documents"])]
    return 200, {"id": "r", "results": sorted(rows, key=lambda row: -row["relevance_score"])}


def test_it_is_the_mean_score_of_the_passages_of_each_step() -> None:
    acme, ada, bath = SCORES
    one = played(("Who founded Acme?", (acme, ada)), ("Where was she born?", (ada, bath)), ("Where?", ()))
    two = played(("Who founded Acme?", (bath, acme)))
    with serving(ranked) as served:
        found = reward(served.base_url, relevance=0.5, answer_em=1.0)
        scores = found.score([one, two])
        assert scores["relevance"] == [[0.75, 0.625, 0.0], [0.375]]
        assert found.totals(scores) == [pytest.approx(1.0 + 0.5 * (0.75 + 0.625) / 3), pytest.approx(1.0 + 0.5 * 0.375)]
        parts = dict(found.parts(scores, [one, two], 0, by_step=True))
        assert parts[0.5] == scores["relevance"], "it is a reward of steps where credit: step asks for them"
        asked = sorted((body["query"], body["documents"], body["top_n"], body["model"]) for body in served.bodies)
        texts = [("Where was she born?", [ada, bath]), ("Who founded Acme?", [acme, ada, bath])]
        assert asked == [(query, documents, len(documents), "small") for query, documents in texts]
        assert found.score([Episode(QUESTION)])["relevance"] == [[]], "an episode without a search asks nothing"
        assert len(served.bodies) == 2


def test_an_answer_without_a_score_for_every_passage_is_one_line() -> None:
    one, wild = (
        {"results": [{"index": place, "relevance_score": score} for place in range(count)]}
        for count, score in ((1, 0.5), (2, float("nan")))
    )
    message = "the answer holds no finite score for each of 2 passages; servers.ranker.urls must be the address of"
    for answer in (one, wild, {"data": []}, "<html>"):
        with serving(lambda body, number, answer=answer: (200, answer)) as served, pytest.raises(ParamsError) as error:
            reward(served.base_url).score([played(("Who?", tuple(SCORES)[:2]))])
        assert str(error.value).startswith("reward.reranker at http://127.0.0.1") and message in str(error.value)
    with pytest.raises(ServiceUnavailable, match=r"reward\.reranker at http://127\.0\.0\.1:\d+/v1: connection failed"):
        reward(served.base_url).score([played(("Who?", tuple(SCORES)[:1]))])  # it is gone


def test_a_reranker_and_its_term_need_each_other() -> None:
    for section, message in (
        ({"terms": {"relevance": 1.0}}, r"relevance is the score of a reranker; give reward\.reranker, or name reader"),
        ({"terms": {"recall": 1.0}, "reranker": {"model": "m"}}, "reranker is asked by the term relevance only"),
    ):
        with pytest.raises(ValueError, match=message):
            Params.model_validate(GOOD | {"reward": section})


@pytest.fixture(scope="module")
def cross_encoder(tiny: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny encoder with a seeded head of one label."""
    torch.manual_seed(0)
    out = tmp_path_factory.mktemp("cross") / "model"
    CrossEncoder(tiny, num_labels=1, device="cpu").save_pretrained(str(out))
    return out


def test_a_cross_encoder_reads_both_texts_at_once(cross_encoder: Path) -> None:
    score = open_reranker(RerankerParams(model=str(cross_encoder)), "reward.reranker")
    texts = ["A town on a river in the west of the country.", "She was born in Bath.", "Ada"]
    found = score([("Where was Eva born?", texts), ("a river", texts[:1]), ("nothing", [])])
    assert [len(own) for own in found] == [3, 1, 0] and score([]) == []
    alone = CrossEncoder(str(cross_encoder), device="cpu")
    pairs = [("Where was Eva born?", text) for text in texts] + [("a river", texts[0])]
    plain = [float(alone.predict(pair, activation_fn=torch.nn.Identity())) for pair in pairs]
    assert np.allclose([*found[0], *found[1]], plain, rtol=0, atol=2e-6)
    assert np.diff(sorted(plain)).min() > 5e-5, "they differ by more than is allowed"


def test_what_is_no_cross_encoder_is_one_line(tiny: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"scores no pairs of texts; set reward\.reranker\.model to a cross-encoder"):
        open_reranker(RerankerParams(model=tiny), "reward.reranker")
    CrossEncoder(tiny, num_labels=2, device="cpu").save_pretrained(str(tmp_path / "two"))
    with pytest.raises(ModelError, match="has 2 labels, not one score"):
        open_reranker(RerankerParams(model=str(tmp_path / "two")), "reward.reranker")
    with pytest.raises(ModelError, match=r"model folder /nowhere does not exist; set reward\.reranker\.model"):
        open_reranker(RerankerParams(model="/nowhere"), "reward.reranker")
