"""A multi-vector model: MaxSim by hand, every text encoded once, models that are none, and LeReT's search by it."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from by_hand import Fixed
from harr_late_interaction.multi_vector import MultiVectorScores, load_multi_vector
from harr_rerankers.reranked import Reranked

from harr.builders.retrievers import fixed_retriever
from harr.embed.encoder import Encoder
from harr.errors import ModelError, ParamsError
from harr.index.corpus import Corpus
from harr.io.files import read_json, write_json
from harr.params.retriever import RetrieverParams
from harr.types import Passage, Question, Retrieval, Search

MULTI_VECTOR = "harr_late_interaction.multi_vector:MultiVector"
PASSAGES = (
    Passage("a", "A town on a river.", "Bath"),
    Passage("b", "She was born in Bath.", "Eva Gray"),
    Passage("c", "A painter of the north.", "Ada Brown"),
    Passage("d", "A town on a river.", "Bath"),  # as the first
)


def searches(*queries: str, k: int = 0) -> list[Search]:
    return [Search(Question("q", "Who?"), query, k=k) for query in queries]


def test_passages_stand_in_the_order_of_maxsim(multi_vector: Path) -> None:
    vectors, base = load_multi_vector(str(multi_vector)), Fixed(*PASSAGES)
    asked = searches("Where was Eva Gray born?", "painter", "town river")
    found = Reranked(base, vectors, k=3, depth=4).retrieve(asked)
    assert [[search.k for search in batch] for batch in base.batches] == [[4, 4, 4]]
    matrices = vectors.model.encode_document([p.content for p in PASSAGES], convert_to_numpy=True)
    assert {tokens.shape[1] for tokens in matrices} == {32}
    for search, retrieval in zip(asked, found, strict=True):
        own = vectors.model.encode_query([search.query], convert_to_numpy=True)[0]
        scores = [float((own @ tokens.T).max(axis=1).sum()) for tokens in matrices]
        order = sorted(range(4), key=lambda place: (-round(scores[place], 4), place))[:3]
        assert [passage.id for passage in retrieval.passages] == [PASSAGES[place].id for place in order]
        assert np.allclose(retrieval.scores, [scores[place] for place in order], atol=1e-4)
    assert found[0].passages[0].id == "b", "it has all words"
    first = [passage.id for passage in found[2].passages]
    assert first[:2] == ["a", "d"], "equal scores: as they came"


def test_a_text_is_encoded_once(multi_vector: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, list[str]] = {"encode_query": [], "encode_document": []}
    model = load_multi_vector(str(multi_vector)).model
    for name, texts in asked.items():
        plain = getattr(model, name)
        monkeypatch.setattr(model, name, lambda given, plain=plain, texts=texts: (texts.extend(given), plain(given))[1])
    vectors = MultiVectorScores(model)
    late = Reranked(Fixed(*PASSAGES), vectors, k=2, depth=3)
    once = late.retrieve(searches("Bath", "Bath", "Eva"))
    assert once[0] == once[1] and late.retrieve(searches("Bath", k=1))[0].passages == once[0].passages[:1]
    assert asked["encode_query"] == ["Bath", "Eva", "Bath"]
    assert asked["encode_document"] == [passage.content for passage in PASSAGES[:3]]
    assert Reranked(Fixed(), vectors, k=2, depth=3).retrieve(searches("Bath")) == [Retrieval(())]
    assert late.retrieve([]) == []


def test_what_pylate_saves_names_no_type(multi_vector: Path, tmp_path: Path) -> None:
    saved = shutil.copytree(multi_vector, tmp_path / "saved")
    settings = read_json(file := saved / "config_sentence_transformers.json")
    del settings["model_type"]
    write_json(file, settings | {"similarity_fn_name": "MaxSim"})
    assert load_multi_vector(str(saved)).model.encode_query("Bath").shape[1] == 32


def test_other_models_are_refused(make: Callable[..., Any], tiny: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"one vector a text; set settings\.model to a multi-vector model"):
        make(MULTI_VECTOR, model=tiny)
    with pytest.raises(ModelError, match=r"does not exist; set settings\.model to a folder or a hub name"):
        make(MULTI_VECTOR, model=str(tmp_path / "none"))
    with pytest.raises(ParamsError, match=r"settings of MultiVector: "):
        make(MULTI_VECTOR)


@pytest.mark.parametrize("search", ["dense", "hybrid"])
def test_it_searches_where_the_language_model_learns(
    searched: Corpus, multi_vector: Path, tiny: str, search: str
) -> None:
    """``retriever.function``: the pool of the search, in another order."""
    section, encoder = RetrieverParams(k=3, pool=8, search=search), Encoder(tiny, max_tokens=64)
    own = section.model_copy(update={"function": MULTI_VECTOR, "settings": {"model": str(multi_vector)}})
    late = fixed_retriever(own, search, encoder, searched, "corpus")
    pools = fixed_retriever(section, search, encoder, searched, "corpus").retrieve(searches("snow", "Bath", k=8))
    for found, pool in zip(late.retrieve(searches("snow", "Bath")), pools, strict=True):
        assert {*found.passages} < {*pool.passages} and len(found.passages) == 3
        assert list(found.scores) == sorted(found.scores, reverse=True)
