"""A pool in the order of a reranker: a server of /rerank, or a cross-encoder that is loaded here."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from by_hand import Fixed
from sentence_transformers import CrossEncoder
from serving import serving

from harr.errors import ModelError
from harr.params.reward import RerankerParams
from harr.params.servers import ServerParams
from harr.rag.retrieval.reranked import Reranked
from harr.rag.scoring.reranker import open_reranker
from harr.types import Passage, Question, Search

PASSAGES = tuple(
    Passage(name, f"Text {name}.", title) for name, title in zip("abcd", ("Bath", "Eva", "", "Bath"), strict=True)
)


def search(query: str, *excluded: str, k: int = 0) -> Search:
    return Search(Question("q", "Who?"), query, exclude_ids=frozenset(excluded), k=k)


@pytest.fixture(scope="module")
def cross_encoder(tiny: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny encoder with a head of one label, drawn by a seed."""
    torch.manual_seed(0)
    out = tmp_path_factory.mktemp("cross") / "model"
    CrossEncoder(tiny, num_labels=1, device="cpu").save_pretrained(str(out))
    return out


def test_a_server_orders_the_pool_and_each_query_is_asked_once() -> None:
    scores = {"Bath: Text a.": 0.1, "Eva: Text b.": 0.9, "Text c.": 0.5, "Bath: Text d.": 0.5}

    def ranked(body: dict[str, Any], number: int) -> tuple[int, Any]:
        texts = enumerate(body["documents"])
        return 200, {"results": [{"index": place, "relevance_score": scores[text]} for place, text in texts]}

    with serving(ranked) as served:
        params = RerankerParams(server=ServerParams(urls=(served.base_url,), concurrency=1), model="small")
        retriever = Reranked(Fixed(*PASSAGES), open_reranker(params, "evaluate.reranker"), k=2, depth=4)
        asked = [search("where"), search("where"), search("where", "b"), search("none", *"abcd"), search("all", k=4)]
        found = retriever.retrieve(asked)
    told = [[passage.id for passage in one.passages] for one in found]
    assert told == [["b", "c"], ["b", "c"], ["c", "d"], [], ["b", "c", "d", "a"]]  # equal scores: as they came
    assert found[0].scores == (0.9, 0.5) and len(served.bodies) == 3


def test_a_cross_encoder_reads_both_texts_at_once(cross_encoder: Path) -> None:
    score = open_reranker(RerankerParams(model=str(cross_encoder)), "evaluate.reranker")
    texts = ["A town on a river in the west of the country.", "She was born in Bath.", "Ada"]
    found = score([("Where was Eva born?", texts), ("a river", texts[:1]), ("nothing", [])])
    assert [len(own) for own in found] == [3, 1, 0] and score([]) == []
    alone = CrossEncoder(str(cross_encoder), device="cpu")
    pairs = [("Where was Eva born?", text) for text in texts] + [("a river", texts[0])]
    plain = [float(alone.predict(pair, activation_fn=torch.nn.Identity())) for pair in pairs]
    assert np.allclose([*found[0], *found[1]], plain, rtol=0, atol=2e-6)
    assert np.diff(sorted(plain)).min() > 5e-5, "they differ by more than is allowed"


def test_what_is_no_cross_encoder_is_one_line(tiny: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"scores no pairs of texts; set evaluate\.reranker\.model to a cross-encoder"):
        open_reranker(RerankerParams(model=tiny), "evaluate.reranker")
    CrossEncoder(tiny, num_labels=2, device="cpu").save_pretrained(str(tmp_path / "two"))
    with pytest.raises(ModelError, match="has 2 labels, not one score"):
        open_reranker(RerankerParams(model=str(tmp_path / "two")), "evaluate.reranker")
    with pytest.raises(ModelError, match=r"model folder /nowhere does not exist; set reward\.reranker\.model"):
        open_reranker(RerankerParams(model="/nowhere"), "reward.reranker")
