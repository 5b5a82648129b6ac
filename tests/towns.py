"""A small real corpus with real vectors and a real index, shared by the library's tests."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")

TOWNS = (
    "Ashford Bradwell Carlton Denholm Easton Farley Gosport Hadleigh Ilkley Keswick Lowick Marlow "
    "Norton Oakham Petworth Ripley Selby Thirsk Upton Wareham"
).split()


@dataclass(frozen=True)
class Corpus:
    """Passages, vectors and index of 40 passages: every town in summer and in winter."""

    folder: Path

    @property
    def questions(self) -> list:
        """Return one question per town; only its winter passage is gold."""
        from harr.types import Question

        return [
            Question(f"q-{town}", f"What is {town} like?", ("snowy",), (f"{town}-winter",), self.given(town))
            for town in TOWNS
        ]

    @staticmethod
    def given(town: str) -> tuple[str, ...]:
        """Return the passages given with a town's question: its own two, and the next town's two."""
        follower = TOWNS[(TOWNS.index(town) + 1) % len(TOWNS)]
        return tuple(f"{name}-{season}" for name in (town, follower) for season in ("summer", "winter"))


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory, tiny: str) -> Corpus:
    """The corpus, built once: written, embedded by the tiny encoder, indexed by Milvus Lite."""

    from harr.corpus.passages import Passages, write_passages
    from harr.corpus.vectors import Vectors
    from harr.embed.encoder import Encoder
    from harr.embed.shards import embed_corpus
    from harr.index.build import build_index
    from harr.params.embed import EmbedParams
    from harr.params.index import IndexParams
    from harr.types import Passage

    folder = tmp_path_factory.mktemp("corpus")
    passages = [
        Passage(f"{town}-{season}", text.format(town), town)
        for town in TOWNS
        for season, text in (
            ("summer", "In summer {} is warm and its market is full of fruit."),
            ("winter", "In winter {} is cold and its lanes are full of snow."),
        )
    ]
    write_passages(passages, folder / "corpus")
    stored = Passages.open(folder / "corpus")
    encoder = Encoder(tiny, max_tokens=64)
    embed_corpus(stored, encoder, EmbedParams(dtype="float32"), folder / "vectors", folder / "work" / "embed")
    build_index(stored, Vectors.open(folder / "vectors"), IndexParams(), folder / "index", folder / "work" / "index")
    return Corpus(folder)


@pytest.fixture
def setup(corpus: Corpus, tiny: str) -> Iterator:
    """A game on the corpus: pick one passage, with recall as the reward; the retriever samples."""
    from functools import partial

    import torch

    from harr.corpus.passages import Passages
    from harr.corpus.vectors import Vectors
    from harr.embed.encoder import Encoder
    from harr.index.passage_index import PassageIndex
    from harr.params.index import IndexParams
    from harr.rag.pipelines.pick import pick
    from harr.rag.policies.dense import DensePolicy
    from harr.rag.scoring.reward import Reward
    from harr.rag.setup import Setup

    vectors = Vectors.open(corpus.folder / "vectors")
    with PassageIndex.open(corpus.folder / "index", IndexParams(), identity=vectors.identity) as index:
        policy = DensePolicy(
            encoder=Encoder(tiny, max_tokens=64),
            index=index,
            vectors=vectors,
            passages=Passages.open(corpus.folder / "corpus"),
            k=1,
            pool=8,
            temperature=0.05,
            candidates="corpus",
            style="sep",
            history=True,
            max_tokens=64,
            sampling=torch.Generator().manual_seed(0),
        )
        reward = Reward({"recall": 1.0})
        yield Setup(corpus.questions, partial(pick, picks=1), policy, None, reward, "test")
