"""A pool in the order of a reranker: the arm rerank."""

from typing import Any

from by_hand import Fixed
from harr_rerankers.reranked import Reranked
from serving import serving

from harr.params.reward import RerankerParams
from harr.params.servers import ServerParams
from harr.rag.scoring.reranker import open_reranker
from harr.types import Passage, Question, Search

PASSAGES = tuple(
    Passage(name, f"Text {name}.", title) for name, title in zip("abcd", ("Bath", "Eva", "", "Bath"), strict=True)
)


def search(query: str, *excluded: str, k: int = 0) -> Search:
    return Search(Question("q", "Who?"), query, exclude_ids=frozenset(excluded), k=k)


def test_a_server_orders_the_pool_and_each_query_is_asked_once() -> None:
    scores = {"Bath: Text a.": 0.1, "Eva: Text b.": 0.9, "Text c.": 0.5, "Bath: Text d.": 0.5}

    def ranked(body: dict[str, Any], number: int) -> tuple[int, Any]:
        texts = enumerate(body["documents"])
        return 200, {"results": [{"index": place, "relevance_score": scores[text]} for place, text in texts]}

    with serving(ranked) as served:
        params = RerankerParams(server=ServerParams(urls=(served.base_url,), concurrency=1), model="small")
        retriever = Reranked(Fixed(*PASSAGES), open_reranker(params, "rerank.settings"), k=2, depth=4)
        asked = [search("where"), search("where"), search("where", "b"), search("none", *"abcd"), search("all", k=4)]
        found = retriever.retrieve(asked)
    ids = [[passage.id for passage in one.passages] for one in found]
    assert ids == [["b", "c"], ["b", "c"], ["c", "d"], [], ["b", "c", "d", "a"]]  # equal scores: as they came
    assert found[0].scores == (0.9, 0.5) and len(served.bodies) == 3
