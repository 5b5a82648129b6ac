"""A fixed corpus, and the retriever that searches it, which can be replaced between two batches."""

import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import torch
from numpy.typing import NDArray

from harr.builders.encoder import build_encoder
from harr.builders.places import Places
from harr.builders.retrievers import dense_policy, open_corpus
from harr.builders.trained import open_retriever, read_facts, searches_words
from harr.corpus.passages import Passages
from harr.corpus.vectors import Vectors
from harr.embed.encoder import Encoder
from harr.embed.inference import faster_dtype, for_inference
from harr.errors import ModelError, ParamsError
from harr.index.corpus import Corpus
from harr.index.passage_index import PassageIndex
from harr.index.scan import VectorScan
from harr.io.model_folder import DOCUMENT
from harr.params import Params
from harr.params.embed import EncoderParams
from harr.params.index import IndexParams
from harr.params.retriever import RetrieverParams
from harr.rag.policies.dense import DensePolicy
from harr.rag.policies.state import reads
from harr.types import Question, Retrieval, Retriever, Search

Dtype = Literal["auto", "float32", "bfloat16"]


CHAMPION = "champion"
BASE = "base"
"""Version name of answers from the base encoder."""
PATIENCE_SECONDS = 3.0
"""How long searches wait for a Milvus server that went away before answering 503."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A search, or a text to encode, for a model: ``champion``, or ``frozen``, the base encoder.

    ``kept``: how many first passages are the best ones, if the champion samples the others; None if it samples none.
    """

    model: str
    wanted: Search | str
    kept: int | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """The passages, or a text's vector, from the model's ``version`` over ``corpus``; ``reads``: the fields of its
    states, "" without states; ``trained_on``: what its training lacked, from harr.json."""

    version: str
    corpus: Corpus
    reads: str = ""
    trained_on: str = ""
    found: Retrieval | None = None
    vector: tuple[float, ...] = ()


@dataclass(frozen=True)
class Serving:
    """An answering model and what it searches."""

    corpus: Corpus
    policy: Retriever
    frozen: Callable[[], DensePolicy]
    statuses: bool
    trained_on: str
    version: str
    folder: Path
    since: float


class Searcher:
    """A project's passages and vectors, opened once, and the current model.

    A Milvus server's index is used; instead of Milvus Lite's, the vectors are scanned in memory, so that
    the stages can use data/index meanwhile (harr/index/scan.py).
    """

    def __init__(self, project: Path, dtype: Dtype = "auto") -> None:
        """Take a project's folder; ``dtype``: the number format that encodes queries, ``auto`` for the faster one.

        bfloat16 takes half the time if the processor supports it, but reorders passages with nearly equal scores.
        """
        self.project, self._dtype = project, dtype
        self._opened = ExitStack()
        self._made: tuple[bytes, ...] = ()
        """The manifests of the open corpus."""
        self._answering = threading.Lock()
        self._draws = torch.Generator().manual_seed(secrets.randbits(63))
        self.serving: Serving | None = None

    def load(self, folder: Path, version: str) -> None:
        """Let a retriever answer from the next batch on; any thread may call this.

        A corpus rebuilt by the stages is opened with it, as is the full-text index for the first model that uses it.

        Raises:
            ModelError, IndexMismatch, DamagedFile: as :meth:`TrainedRetriever.load`; the old model and corpus
                stay in use.
        """
        place, manifests = folder.resolve(), self._read_manifests()
        facts, section = read_facts(place)
        with ExitStack() as opened:
            words = searches_words(facts, section)
            current = self.serving.corpus if self.serving and manifests in (self._made, ()) else None
            if current and words and isinstance(current.index, VectorScan):
                current = None
            corpus = current or self._open(opened, words=words)
            serving = self._serving(facts, section, place, corpus, version)
            with self._answering:
                self.serving = serving
                if current is None:
                    self._opened.close()
                    self._opened, self._made = opened.pop_all(), manifests

    def open_candidate(self, folder: Path, version: str) -> Serving:
        """Return another retriever over the open corpus; it answers no requests.

        Raises:
            ModelError, IndexMismatch: it cannot search that corpus.
        """
        place = folder.resolve()
        facts, section = read_facts(place)
        if (now := self.serving) is None:
            raise ParamsError("no model is loaded yet")
        if searches_words(facts, section) and isinstance(now.corpus.index, VectorScan):
            raise ModelError(
                f"{folder} searches by words ({facts.get('function') or facts['search'] or section.search}), and next to a model that searches "
                "by vectors alone no words are open"
            )
        return self._serving(facts, section, place, now.corpus, version)

    @contextmanager
    def pause_answers(self, corpus: Corpus) -> Iterator[bool]:
        """Answer no requests during the block; yield whether ``corpus`` is still the open one."""
        with self._answering:
            yield self.serving is not None and self.serving.corpus is corpus

    def has_changed(self) -> bool:
        """Return whether the stages have rebuilt the corpus or its vectors since they were opened."""
        return self._read_manifests() not in (self._made, ())

    def _read_manifests(self) -> tuple[bytes, ...]:
        """Return the manifests of the corpus on disk; () while a stage writes them, or if they are missing."""
        places = Places.of_project(self.project)
        with suppress(OSError):
            return tuple((folder / "manifest.json").read_bytes() for folder in (places.corpus, places.vectors))
        return ()

    def answer(self, asks: Sequence[Ask]) -> list[Answer]:
        """Answer all by one version: one forward pass and scan for each of its models that is asked."""
        with self._answering:
            if (now := self.serving) is None:
                raise ParamsError("no model is loaded yet")
            answers: list[Answer] = [Answer(now.version, now.corpus)] * len(asks)
            for model, kept in {(ask.model, ask.kept) for ask in asks}:
                trained = model == CHAMPION
                policy = now.policy if trained else now.frozen()
                own = policy if isinstance(policy, DensePolicy) else None
                version, trained_on = (now.version, now.trained_on) if trained else (BASE, "")
                fields = reads(own.style, own.history) if own else ""
                positions = [at for at, ask in enumerate(asks) if (ask.model, ask.kept) == (model, kept)]
                searches = [(at, ask.wanted) for at in positions if isinstance((ask := asks[at]).wanted, Search)]
                texts = [(at, ask.wanted) for at in positions if isinstance((ask := asks[at]).wanted, str)]
                if searches:
                    chosen_by = policy
                    if own and kept is not None:
                        chosen_by = replace(own, sampling=self._draws, keep=kept)
                    retrievals = chosen_by.retrieve([item for _, item in searches])
                    for (at, _), item in zip(searches, retrievals, strict=True):
                        answers[at] = Answer(version, now.corpus, fields, trained_on, found=item)
                if texts:
                    inputs, dense = [text for _, text in texts], own or now.frozen()
                    vectors = dense.encode(inputs) if trained else self._documents(dense, inputs)
                    for (at, _), vector in zip(texts, vectors, strict=True):
                        answers[at] = Answer(version, now.corpus, vector=tuple(vector[: dense.vectors.width].tolist()))
            return answers

    @property
    def passages(self) -> int:
        """Return the number of searched passages."""
        return self.serving.corpus.index.rows if self.serving else 0

    @property
    def index(self) -> str:
        """Return the identity of the vectors."""
        return self.serving.corpus.vectors.identity if self.serving else ""

    def close(self) -> None:
        """Close the index."""
        self._opened.close()

    def _open(self, opened: ExitStack, *, words: bool) -> Corpus:
        places, settings = Places.of_project(self.project), self.project / "params.yaml"
        searched = Params.load(settings).index if settings.exists() else IndexParams()
        if searched.uri or words:
            corpus = opened.enter_context(open_corpus(searched, places))
            corpus.index.connection.patience = PATIENCE_SECONDS
            return corpus
        passages = Passages.open(places.corpus)
        vectors = Vectors.of(passages, places.vectors)
        scan = cast(PassageIndex, VectorScan(vectors, passages.searchable_rows()))
        return Corpus(passages, vectors, scan, places.tables)

    def _serving(
        self, facts: dict[str, Any], section: RetrieverParams, place: Path, corpus: Corpus, version: str
    ) -> Serving:
        policy = open_retriever(facts, section, place, corpus, self.project, self._cast)
        policy.retrieve([Search(Question("", "warm"), "warm")])
        frozen = cache(partial(self._frozen, facts, section, place, corpus))
        trained_on = facts.get("trained_on", "")
        return Serving(corpus, policy, frozen, facts["statuses"], trained_on, version, place, time.time())

    def _cast(self, encoder: Encoder) -> Encoder:
        if self._dtype == "auto":
            self._dtype = "bfloat16" if faster_dtype(encoder) == torch.bfloat16 else "float32"
        return for_inference(encoder, getattr(torch, self._dtype))

    def _frozen(self, facts: dict[str, Any], section: RetrieverParams, folder: Path, corpus: Corpus) -> DensePolicy:
        tower = folder / DOCUMENT
        name = str(tower) if tower.is_dir() else facts["base_model"]
        encoder = self._cast(build_encoder(EncoderParams(model=name, **facts["encoder"])))
        alone = section.model_copy(update={"link_features": None})
        return dense_policy(alone, encoder, corpus, "corpus", history=False)

    def _documents(self, policy: DensePolicy, texts: Sequence[str]) -> NDArray[np.float32]:
        return policy.encoder.encode(texts, prompt=policy.encoder.passage_prompt)
