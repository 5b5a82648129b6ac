"""A multi-vector model, and fixtures of the library's tests, which these use, too."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import MultiVectorEncoder
from sentence_transformers.base.modules import Dense, Normalize, Transformer
from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask
from tiny import WIDTH
from towns import corpus

from harr.builders.places import Places
from harr.builders.retrievers import fixed_retriever, function_retriever, open_corpus
from harr.embed.encoder import Encoder
from harr.index.corpus import Corpus
from harr.params.index import IndexParams
from harr.params.retriever import RetrieverParams

__all__ = ["corpus"]


@pytest.fixture(scope="session")
def multi_vector(tiny: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A multi-vector model: the tiny encoder without its pooling, a vector a token, of which 32 numbers stay."""
    out = tmp_path_factory.mktemp("late") / "model"
    names = {"module_input_name": "token_embeddings", "module_output_name": "token_embeddings"}
    narrow = Dense(WIDTH, 32, bias=False, activation_function=torch.nn.Identity(), **names)
    narrow.linear.weight.data = torch.eye(32, WIDTH)
    modules = [Transformer(tiny), narrow, MultiVectorMask(), Normalize(module_input_name="token_embeddings")]
    MultiVectorEncoder(modules=modules, device="cpu").save_pretrained(str(out))
    return out


@pytest.fixture
def searched(corpus: Any, tmp_path: Path) -> Iterator[Corpus]:
    """The towns' passages, vectors and index."""
    made, own = ("corpus", "vectors", "index", "tables"), tmp_path / "work"
    places = Places(*(corpus.folder / name for name in made), own / "generator", own / "texts", own / "searches")
    with open_corpus(IndexParams(), places) as opened:
        yield opened


@pytest.fixture
def make(searched: Corpus, tiny: str) -> Callable[..., Any]:
    """Make one of the retrievers of the towns, k 3 of a pool of 8, with these settings."""

    def made(function: str, encoder: Encoder | None = None, **settings: Any) -> Any:
        section, encoder = RetrieverParams(k=3, pool=8), encoder or Encoder(tiny, max_tokens=64)
        base = fixed_retriever(section, "dense", encoder, searched, "corpus")
        return function_retriever(function, settings, base, section, encoder, searched, "corpus")

    return made
