"""A corpus that stays, and the model that reads queries for it, which is changed between two batches."""

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from harr.builders.encoder import build_encoder
from harr.builders.places import Places
from harr.builders.retrievers import Corpus, dense_policy, open_corpus
from harr.corpus.passages import Passages
from harr.corpus.vectors import Vectors
from harr.errors import ParamsError
from harr.index.mentions import Mentions
from harr.index.passage_index import PassageIndex
from harr.index.scan import VectorScan
from harr.index.words import WordIndex
from harr.io.model_folder import DOCUMENT
from harr.library.trained import read_facts, trained_policy
from harr.params import Params
from harr.params.embed import EncoderParams
from harr.params.index import IndexParams
from harr.params.retriever import RetrieverParams
from harr.rag.policies.dense import DensePolicy
from harr.types import Question, Retrieval, Search

Dtype = Literal["float32", "bfloat16"]


@dataclass(frozen=True, slots=True)
class Ask:
    """A search, or a text to be encoded, for one of the models: ``champion``, or ``frozen``, the base encoder."""

    model: str
    wanted: Search | str


@dataclass(frozen=True, slots=True)
class Answer:
    """What was found, or the vector of a text; ``version``: of the model that read it."""

    version: str
    found: Retrieval | None = None
    vector: tuple[float, ...] = ()


@dataclass(frozen=True)
class Serving:
    """A model that answers."""

    policy: DensePolicy
    frozen: Callable[[], DensePolicy]
    statuses: bool
    version: str
    folder: Path
    since: float


class Searcher:
    """A project's passages and vectors, opened once, and the model of the moment.

    Where a Milvus server has the index, it is asked; in place of Milvus Lite the vectors are scanned in memory, so that
    the stages can use data/index meanwhile (harr/index/scan.py).
    """

    def __init__(self, project: Path, dtype: Dtype = "float32") -> None:
        """Take a project's folder; ``dtype``: what queries are encoded in.

        bfloat16 is twice as fast or more where the processor has it, and moves passages that are nearly level.
        """
        self.project, self._dtype = project, dtype
        self._opened = ExitStack()
        self._corpus: Corpus | None = None
        self.serving: Serving | None = None

    def load(self, folder: Path, version: str) -> None:
        """Let a trained retriever answer from the next batch on; may be called from another thread.

        Raises:
            ModelError, IndexMismatch, DamagedFile: as :meth:`TrainedRetriever.load`; the model of before goes on.
        """
        place = folder.resolve()
        facts, section = read_facts(place)
        corpus = self._corpus = self._corpus or self._open(section)
        policy = self._cast(trained_policy(facts, section, place, corpus, self.project))
        policy.retrieve([Search(Question("", "warm"), "warm")])
        frozen = cache(partial(self._frozen, facts, section, place, corpus))
        self.serving = Serving(policy, frozen, facts["statuses"], version, place, time.time())

    def answer(self, asks: Sequence[Ask]) -> list[Answer]:
        """Answer all by one version: a forward pass and a scan for each of its models that is asked."""
        if (now := self.serving) is None:
            raise ParamsError("no model is loaded yet")
        answers: list[Answer] = [Answer(now.version)] * len(asks)
        for model in {ask.model for ask in asks}:
            policy = now.policy if model == "champion" else now.frozen()
            own = [at for at, ask in enumerate(asks) if ask.model == model]
            searches = [(at, ask.wanted) for at in own if isinstance((ask := asks[at]).wanted, Search)]
            texts = [(at, ask.wanted) for at in own if isinstance((ask := asks[at]).wanted, str)]
            known = self._known([one for _, one in searches])
            for group in _of_one_depth(policy, zip((at for at, _ in searches), known, strict=True)):
                found = policy.retrieve([one for _, one in group])
                for (at, _), one in zip(group, found, strict=True):
                    answers[at] = Answer(now.version, found=one)
            if texts:
                told = [text for _, text in texts]
                vectors = policy.encode(told) if model == "champion" else self._documents(policy, told)
                for (at, _), vector in zip(texts, vectors, strict=True):
                    answers[at] = Answer(now.version, vector=tuple(vector[: policy.vectors.width].tolist()))
        return answers

    def _known(self, searches: Sequence[Search]) -> list[Search]:
        """Return the searches without excluded ids that the corpus has not, such as those of a deleted passage."""
        if self._corpus is None or not any(one.exclude_ids for one in searches):
            return [*searches]
        rows = self._corpus.passages.rows_of({pid for one in searches for pid in one.exclude_ids})
        return [replace(one, exclude_ids=one.exclude_ids & rows.keys()) for one in searches]

    @property
    def passages(self) -> int:
        """Return how many passages are searched."""
        return self._corpus.index.rows if self._corpus else 0

    @property
    def index(self) -> str:
        """Return the identity of the vectors."""
        return self._corpus.vectors.identity if self._corpus else ""

    def close(self) -> None:
        """Let go of the index."""
        self._opened.close()

    def _open(self, section: RetrieverParams) -> Corpus:
        places, settings = Places.of_project(self.project), self.project / "params.yaml"
        searched = Params.load(settings).index if settings.exists() else IndexParams()
        if searched.uri or section.search != "dense":
            return self._opened.enter_context(open_corpus(searched, places))
        passages = Passages.open(places.corpus)
        vectors = Vectors.of(passages, places.vectors)
        scan = cast(PassageIndex, VectorScan(vectors, passages.searchable_rows()))
        mentions = cache(partial(Mentions.of, passages, places.mentions))
        return Corpus(passages, vectors, scan, mentions, cache(partial(WordIndex.of, passages, places.words)))

    def _cast(self, policy: DensePolicy) -> DensePolicy:
        return replace(policy, encoder=policy.encoder.bfloat16()) if self._dtype == "bfloat16" else policy

    def _frozen(self, facts: dict[str, Any], section: RetrieverParams, folder: Path, corpus: Corpus) -> DensePolicy:
        own = folder / DOCUMENT
        name = str(own) if own.is_dir() else facts["base_model"]
        encoder = build_encoder(EncoderParams(model=name, **facts["encoder"]))
        alone = section.model_copy(update={"evidence": None})
        return self._cast(dense_policy(alone, encoder, corpus, "corpus", history=False))

    def _documents(self, policy: DensePolicy, texts: Sequence[str]) -> NDArray[np.float32]:
        return policy.encoder.encode(texts, prompt=policy.encoder.passage_prompt)


def _of_one_depth(policy: DensePolicy, searches: Iterable[tuple[int, Search]]) -> Iterable[list[tuple[int, Search]]]:
    """Return the searches that look at equally many candidates together.

    A policy looks at as many for all as one of them needs, and where words or titles bring candidates, the best of
    more are others: what one client asks for must not change what another finds.
    """
    groups: dict[tuple[int, int], list[tuple[int, Search]]] = {}
    for at, one in searches:
        depth = max(policy.pool, one.k), len(one.exclude_ids) if policy.fusion.sparse else 0
        groups.setdefault(depth, []).append((at, one))
    return groups.values()
