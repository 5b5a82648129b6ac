"""Late interaction: MaxSim by hand, every text encoded once, and models that are none."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from by_hand import Fixed

from harr.errors import ModelError
from harr.rag.retrieval.late_interaction import LateInteraction, TokenVectors, load_multi_vector, search_identity
from harr.types import Passage, Question, Retrieval, Search

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
    found = LateInteraction(base, vectors, k=3, depth=4).retrieve(asked)
    assert [[search.k for search in batch] for batch in base.batches] == [[4, 4, 4]]
    told = vectors.model.encode_document([p.content for p in PASSAGES], convert_to_numpy=True)
    assert {tokens.shape[1] for tokens in told} == {32}
    for search, retrieval in zip(asked, found, strict=True):
        own = vectors.model.encode_query([search.query], convert_to_numpy=True)[0]
        scores = [float((own @ tokens.T).max(axis=1).sum()) for tokens in told]
        order = sorted(range(4), key=lambda place: (-round(scores[place], 4), place))[:3]
        assert [passage.id for passage in retrieval.passages] == [PASSAGES[place].id for place in order]
        assert np.allclose(retrieval.scores, [scores[place] for place in order], atol=1e-4)
    assert found[0].passages[0].id == "b", "it has all words"
    first = [passage.id for passage in found[2].passages]
    assert first[:2] == ["a", "d"], "equal scores: as they came"


def test_a_text_is_encoded_once(multi_vector: Path, monkeypatch: Any) -> None:
    vectors = TokenVectors(load_multi_vector(str(multi_vector)).model)
    asked: dict[str, list[str]] = {"encode_query": [], "encode_document": []}
    for name, texts in asked.items():
        plain = getattr(vectors.model, name)
        monkeypatch.setattr(
            vectors.model, name, lambda given, plain=plain, texts=texts: (texts.extend(given), plain(given))[1]
        )
    late = LateInteraction(Fixed(*PASSAGES), vectors, k=2, depth=3)
    once = late.retrieve(searches("Bath", "Bath", "Eva"))
    assert once[0] == once[1] and late.retrieve(searches("Bath", k=1))[0].passages == once[0].passages[:1]
    assert asked["encode_query"] == ["Bath", "Eva", "Bath"]
    assert asked["encode_document"] == [passage.content for passage in PASSAGES[:3]]
    assert LateInteraction(Fixed(), vectors, k=2, depth=3).retrieve(searches("Bath")) == [Retrieval(())]
    assert late.retrieve([]) == []


def test_the_identity_of_a_search_is_that_of_the_weights(multi_vector: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(multi_vector, tmp_path / "copy")
    known = search_identity("index-1", str(multi_vector))
    assert search_identity("index-1", "") == "index-1" != known
    assert search_identity("index-1", str(folder)) == known != search_identity("index-2", str(folder))
    projection = folder / "1_Dense" / "model.safetensors"
    projection.write_bytes(projection.read_bytes()[:-1] + b"?")
    assert search_identity("index-1", str(folder)) != known


def test_other_models_are_refused(tiny: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"one vector a text; set retriever\.late_interaction to a multi-vector model"):
        load_multi_vector(tiny)
    with pytest.raises(ModelError, match=r"does not exist; set retriever\.late_interaction to a folder or a hub name"):
        load_multi_vector(str(tmp_path / "none"))
