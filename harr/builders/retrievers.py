"""Build players that search a corpus from section ``retriever`` and trained models."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from harr.arms import Arm
from harr.builders.encoder import action_folder, trained_encoder
from harr.builders.fit import check_trained
from harr.builders.places import Places
from harr.compute import distributed
from harr.corpus.passages import Passages
from harr.corpus.vectors import Vectors
from harr.embed.encoder import Encoder
from harr.errors import ModelError, ParamsError
from harr.index.corpus import Corpus, open_index, other_index
from harr.index.passage_index import PassageIndex
from harr.io.files import fingerprint
from harr.params.embed import EncoderParams
from harr.params.functions import function_of
from harr.params.index import IndexParams
from harr.params.retriever import RetrieverParams
from harr.params.sources import MilvusParams, SourceParams
from harr.rag.policies.dense import DensePolicy
from harr.rag.policies.link_features import CandidateScorer, LinkFeatures, open_scorer
from harr.rag.policies.query_adapter import QueryAdapter
from harr.rag.policies.two_tower import TwoTowerPolicy
from harr.rag.retrieval.bm25 import BM25Retriever
from harr.rag.retrieval.hybrid import DENSE, HybridRetriever, fusion_of
from harr.rag.retrieval.rewritten import RULES as REWRITES, Rewritten, rewrite_query
from harr.types import Retriever

if TYPE_CHECKING:
    from harr.rag.sources.client import WebSource
    from harr.rag.sources.router import Sources


@contextmanager
def open_corpus(section: IndexParams, places: Places) -> Iterator[Corpus]:
    """Open the outputs of stages download, embed and index; only the main process opens the index.

    If there are none, another package's index (``index.function``) may be the corpus.

    Raises:
        IndexMismatch: the three do not belong to the same corpus.
    """
    if not places.corpus.exists() and (other := other_index(section)) and other.corpus:
        with other.corpus(section) as corpus:
            yield corpus
        return
    mapped: list[tuple[Passages, Vectors]] = []
    distributed.main_process_only(lambda: mapped.append(_map_corpus(places)))  # hashes; the others reuse its notes
    passages, vectors = mapped[0] if mapped else _map_corpus(places)
    opened = partial(open_index, passages, vectors, section, places.index)
    with distributed.open_in_main(opened) as index:
        yield Corpus(passages, vectors, index, places.tables)


def _map_corpus(places: Places) -> tuple[Passages, Vectors]:
    passages = Passages.open(places.corpus)
    return passages, Vectors.of(passages, places.vectors)


def arm_retriever(
    arm: Arm,
    section: RetrieverParams,
    encoder: Encoder | None,
    corpus: Corpus,
    candidates: str,
    trained: Path | None = None,
) -> Retriever:
    """Return what searches for an arm, in evaluation and when served.

    ``encoder`` encodes its queries or states, None if it reads only words; ``trained`` is as in :func:`dense_policy`.
    """
    searcher: Retriever
    if arm.function:
        assert encoder
        parts = section, encoder, corpus, candidates
        base = fixed_retriever(section, section.search, encoder, corpus, candidates)
        return function_retriever(arm.function, arm.settings, base, *parts)
    if arm.search:
        searcher = fixed_retriever(section, arm.search, encoder, corpus, candidates)
    else:
        assert encoder
        searcher = dense_policy(section, encoder, corpus, candidates, history=arm.history, trained=trained)
    return with_rewriting(searcher, arm)


def with_rewriting(searcher: Retriever, arm: Arm) -> Retriever:
    """Return a searcher that receives queries rewritten by the arm's rule, if it has one."""
    return Rewritten(searcher, rewrite_query(REWRITES[arm.query])) if arm.query else searcher


def fixed_retriever(
    section: RetrieverParams, search: str, encoder: Encoder | None, corpus: Corpus, candidates: str
) -> Retriever:
    """Return a fixed retriever that sees only the current query: ``dense``, ``sparse``, ``hybrid``, or what
    ``retriever.function`` makes of it.

    Raises:
        ParamsError: there is no such function, or it returns something else.
    """
    retriever: Retriever
    retriever = sparse = BM25Retriever(corpus.index, corpus.passages, section.k, candidates)
    if search == "sparse" and not section.function:
        return retriever
    assert encoder
    dense = replace(dense_policy(section, encoder, corpus, candidates, history=False), fusion=DENSE)
    if search == "dense":
        retriever = dense
    if search == "hybrid":
        fusion = fusion_of("hybrid", section.fusion, section.weights)
        retriever = HybridRetriever(dense, sparse, fusion, k=section.k, depth=section.pool)
    if section.function:
        parts = section, encoder, corpus, candidates
        return function_retriever(section.function, section.settings, retriever, *parts, key="retriever.function")
    return retriever


def dense_policy(
    section: RetrieverParams,
    encoder: Encoder,
    corpus: Corpus,
    candidates: str,
    *,
    history: bool,
    seed: int | None = None,
    trained: Path | None = None,
) -> DensePolicy:
    """Return a policy that ranks by the encoder, with or without the ``history``; with a ``seed`` it samples.

    ``trained`` is the encoder's folder, from which the link term, if any, is loaded, too.
    """
    link_features: CandidateScorer | None = None
    if section.link_features and (trained or seed is not None):
        shape = "takes a Corpus (harr.index.corpus) and returns links (harr.rag.policies.link_features)"
        links = function_of(section.link_features, key="retriever.link_features", shape=shape)(corpus)
        term = LinkFeatures(links, section.temperature)
        link_features = open_scorer(trained, term) if trained else term
    return DensePolicy(
        encoder=encoder,
        index=corpus.index,
        vectors=corpus.vectors,
        passages=corpus.passages,
        k=section.k,
        pool=section.pool,
        temperature=section.temperature,
        candidates=candidates,
        style=section.state,
        history=history,
        max_tokens=section.max_tokens,
        sampling=None if seed is None else torch.Generator().manual_seed(seed),
        fusion=fusion_of(section.search, section.fusion, section.weights),
        pick_tokens=section.pick_tokens,
        link_features=link_features,
        frozen=section.learns != "all",
        query_adapter=QueryAdapter(encoder.width).to(encoder.model.device)
        if section.learns == "query_adapter" and seed is not None
        else None,
    )


def source_retrievers(
    sources: Mapping[str, SourceParams],
    web: "Mapping[str, WebSource]",
    section: RetrieverParams,
    encoder: Encoder,
    corpus: Corpus,
    candidates: str,
) -> "Sources":
    """Return all sources as one retriever; those of the ``web`` are already open. None of them learns."""
    from harr.rag.sources.router import Sources

    by_tool: dict[str, Retriever] = {}
    for tool, source in sources.items():
        if isinstance(source, MilvusParams):
            index = _of_source(corpus.index, tool) if source.collection == "source" else corpus.index
            by_tool[tool] = fixed_retriever(section, section.search, encoder, replace(corpus, index=index), candidates)
    return Sources(by_tool, web, section.k)


@dataclass(frozen=True)
class RetrieverInputs:
    """What another package's retriever is made from (docs/arms.md)."""

    passages: Passages
    """All passages: ``passages.take(rows)``, and ``passages.rows_of(ids)``."""
    vectors: Vectors
    """The base encoder's vectors of all passages, in the same order: ``vectors.take(rows)``."""
    index: PassageIndex
    """The index of stage index, which searches by vector and, if built so, by words."""
    encoder: Encoder
    """The base encoder."""
    base: Retriever
    """The ranking of ``retriever.search``."""
    k: int
    """Number of passages that a search returns unless it sets another (``Search.k``)."""
    pool: int
    """Number of passages of ``base`` to rerank (``retriever.pool``)."""
    candidates: str
    """``corpus``, or ``question``: only the passages given with a question (``Question.candidate_ids``)."""
    settings: Mapping[str, Any]
    """The ``settings`` next to its name in params.yaml."""
    tables: Path | None
    """Folder for what is computed once per corpus; None if the corpus is only a collection."""


def function_retriever(
    function: str,
    settings: Mapping[str, Any],
    base: Retriever,
    section: RetrieverParams,
    encoder: Encoder,
    corpus: Corpus,
    candidates: str,
    *,
    key: str = "evaluate.arms",
) -> Retriever:
    """Return the retriever made by another package's function, which ``key`` in params.yaml names.

    Raises:
        ParamsError: there is no such function, or it returns something else.
    """
    parts, sizes = (corpus.passages, corpus.vectors, corpus.index, encoder, base), (section.k, section.pool)
    value = retriever_function(function, key)(RetrieverInputs(*parts, *sizes, candidates, settings, corpus.tables))
    if not callable(getattr(value, "retrieve", None)):
        raise ParamsError(
            f"{key}: {function} makes {type(value).__name__} without a method retrieve; return a Retriever (harr.types)"
        )
    return value


def retriever_function(function: str, key: str = "evaluate.arms") -> Callable[[RetrieverInputs], Any]:
    """Return the function of this name, which makes a retriever.

    Raises:
        ParamsError: there is none.
    """
    shape = "takes RetrieverInputs (harr.builders.retrievers) and returns a Retriever"
    return function_of(function, key=key, shape=shape)


def search_identity(index: str, section: RetrieverParams) -> str:
    """Return a search's identity: that of its ``index``, with ``retriever.function`` and its settings.

    >>> search_identity("3f2a", RetrieverParams())
    '3f2a'
    """
    if not section.function:
        return index
    return fingerprint({"index": index, "function": section.function, "settings": section.settings})


def _of_source(index: PassageIndex, source: str) -> PassageIndex:
    """Return a source's part of the index, which only the main process opens; an error reaches all processes."""
    parts: list[PassageIndex] = []
    distributed.main_process_only(lambda: parts.append(index.of_source(source)))
    return parts[0] if parts else index


def trained_towers(encoder: EncoderParams, section: RetrieverParams, folder: Path) -> TwoTowerPolicy:
    """Return the towers of a trained adapter or merged model, without a corpus: the caller provides documents.

    Raises:
        ModelError: the folder has no action tower: it was trained by another method.
    """
    if (actions := action_folder(folder)) is None:
        raise ModelError(f"{folder} holds no tower of actions (folder action); train with train.method: pqn")
    towers = towers_policy(section, trained_encoder(encoder, folder), trained_encoder(encoder, actions), None)
    check_trained(folder, towers.facts)
    return towers


def towers_policy(
    section: RetrieverParams, states: Encoder, actions: Encoder, passages: Passages | None, seed: int | None = None
) -> TwoTowerPolicy:
    """Return a policy that picks by the values of two towers; with a ``seed`` it samples."""
    return TwoTowerPolicy(
        states=states,
        actions=actions,
        passages=passages,
        mode=section.positions,
        temperature=section.temperature,
        max_tokens=section.max_tokens,
        pick_tokens=section.pick_tokens,
        scale=section.value_scale,
        pick_order=section.pick_order,
        sampling=None if seed is None else torch.Generator().manual_seed(seed),
    )
