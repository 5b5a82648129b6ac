"""The players of a run: what searches its corpus and what writes, for those who learn and those who compare."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from harr.arms import Arm
from harr.build.parts import (
    build_encoder,
    build_generator,
    build_reward,
    build_sampler,
    build_training_pipeline,
    stamps,
    writer_folder,
)
from harr.compute import distributed
from harr.corpus.passages import Passages, read_questions
from harr.corpus.vectors import Vectors
from harr.embed.encoder import Encoder
from harr.errors import CorpusError, IndexMismatch, ModelError
from harr.index.passage_index import PassageIndex
from harr.io.files import fingerprint, read_json, sha256
from harr.params import Params
from harr.params.sources import MilvusParams
from harr.rag.policies.dense import DensePolicy
from harr.rag.policies.encoder_adapter import load_adapter
from harr.rag.policies.two_tower import TwoTowerPolicy
from harr.rag.retrieval.bm25 import BM25Retriever
from harr.rag.retrieval.hybrid import DENSE, HybridRetriever, fusion_of
from harr.rag.retrieval.late_interaction import LateInteraction, load_multi_vector, search_identity
from harr.rag.setup import Setup
from harr.rag.sources.client import WebSource
from harr.rag.sources.providers import check_sources
from harr.rag.sources.router import Sources, settings, web_source
from harr.types import Question, Retriever

CORPUS, VECTORS, INDEX = Path("data/corpus"), Path("data/vectors"), Path("data/index")


def arm_params(params: Params, arm: Arm) -> Params:
    """Return the parameters that an arm is trained and played with: those of the run, but for its overrides."""
    return params.model_copy(update={"retriever": params.retriever.model_copy(update=arm.overrides)})


@contextmanager
def open_setup(params: Params, questions: Path, *, history: bool = True, sampling: bool = False) -> Iterator[Setup]:
    """Everything that filter and train need; a retriever that learns samples, and sees the ``history`` or not.

    Where the language model learns there is no generator, but the ``writer`` that it begins from, and the retriever
    is ``retriever.search`` of the current query, as it ranks; or all ``sources``, where there are some. With
    ``sampling`` that writer is the generator, too.

    Raises:
        IndexMismatch: data/vectors or data/index belong to another encoder or corpus, or lack a source.
        ParamsError: a source cannot be asked.
    """
    check_sources(params.sources)
    with _open_index(params) as (passages, vectors, index):
        encoder = build_encoder(params)
        _check_encoder(encoder, vectors)
        game = params.model_dump(include={"retriever", "pipeline", "generator", "reward"}, mode="json")
        section, place = params.retriever, writer_folder(params.generator)
        writes, searched = params.writer_learns, search_identity(vectors.identity, section.late_interaction)
        retriever: Retriever
        if params.sources:
            game["sources"] = settings(params.sources)
            retriever = _sources(params, encoder, index, vectors, passages, section.candidates)
        elif writes:
            retriever = _fixed(params, section.search, encoder, index, vectors, passages, section.candidates)
        elif params.train.method == "pqn":
            retriever = _towers(params, encoder, build_encoder(params), passages, sampling=True)
        else:
            retriever = _dense(params, encoder, index, vectors, passages, history=history, sampling=True)
        facts = {
            "game": game,
            "history": history,
            "index": searched,
            "questions": sha256(questions),
            "writer": stamps(place),
        }
        yield Setup(
            questions=read_questions(questions),
            pipeline=build_training_pipeline(params),
            retriever=retriever,
            generator=build_generator(params) if not writes else build_sampler(params) if sampling else None,
            reward=build_reward(params),
            identity=fingerprint(facts),
            index=searched,
            data=questions.parent,
            writer=str(place) if writes else "",
            facts=facts,
        )


@contextmanager
def open_players(
    params: Params, questions: Sequence[Question], *, candidates: str, sampling: bool = False
) -> Iterator[Callable[[Arm, Path | None], Retriever]]:
    """Open what evaluation compares: ``player(arm, trained)`` is a retriever that takes its best K, or samples.

    ``trained`` is the folder of an adapter or of a merged model; without one the base encoder ranks. Where the language
    model learns, all arms search with ``retriever.search``, and differ in who writes
    (:func:`harr.build.parts.build_writer`).

    Raises:
        CorpusError: a question's gold or given passage is not in the corpus.
        IndexMismatch: data/vectors or data/index belong to another encoder or corpus, or lack a source.
        ParamsError: a source cannot be asked.
    """
    check_sources(params.sources)
    with _open_index(params) as (passages, vectors, index):
        _check_ids(questions, passages)
        base = build_encoder(params)
        _check_encoder(base, vectors)

        def player(arm: Arm, trained: Path | None) -> Retriever:
            if params.sources:
                return _sources(params, base, index, vectors, passages, candidates)
            search = params.retriever.search if params.writer_learns else arm.search
            if search:
                return _fixed(params, search, base, index, vectors, passages, candidates)
            if trained and (trained / "action").exists():
                actions = _trained(params, trained / "action")
                return _towers(arm_params(params, arm), _trained(params, trained), actions, passages, sampling=sampling)
            encoder = _trained(params, trained) if trained else base
            return _dense(
                params,
                encoder,
                index,
                vectors,
                passages,
                history=arm.history,
                sampling=sampling,
                candidates=candidates,
            )

        yield player


def _fixed(
    params: Params,
    search: str,
    encoder: Encoder,
    index: PassageIndex,
    vectors: Vectors,
    passages: Passages,
    candidates: str,
) -> Retriever:
    """A retriever that does not learn and sees the current query alone: ``dense``, ``sparse`` or ``hybrid``."""
    section = params.retriever
    sparse = BM25Retriever(index, passages, section.k, candidates)
    policy = _dense(params, encoder, index, vectors, passages, history=False, sampling=False, candidates=candidates)
    dense = replace(policy, fusion=DENSE)
    found: Retriever = dense if search == "dense" else sparse
    if search == "hybrid":
        fusion = fusion_of("hybrid", section.fusion, section.weights)
        found = HybridRetriever(dense, sparse, fusion, k=section.k, depth=section.pool)
    if section.late_interaction:
        tokens = load_multi_vector(section.late_interaction, distributed.device())
        return LateInteraction(found, tokens, k=section.k, depth=section.pool)
    return found


def _sources(
    params: Params, encoder: Encoder, index: PassageIndex, vectors: Vectors, passages: Passages, candidates: str
) -> Sources:
    """The sources of a pipeline that names a tool with every search; none of them learns."""
    own: dict[str, Retriever] = {}
    web: dict[str, WebSource] = {}
    for tool, section in params.sources.items():
        if not isinstance(section, MilvusParams):
            web[tool] = web_source(tool, section)
            continue
        part = _of_source(index, tool) if section.collection == "source" else index
        own[tool] = _fixed(params, params.retriever.search, encoder, part, vectors, passages, candidates)
    return Sources(own, web)


def _of_source(index: PassageIndex, source: str) -> PassageIndex:
    """A source's part of the index, which the main process alone has; where there is none, all processes are told."""
    held: list[PassageIndex] = []
    distributed.only_main(lambda: held.append(index.of_source(source)))
    return held[0] if held else index


@contextmanager
def _open_index(params: Params) -> Iterator[tuple[Passages, Vectors, PassageIndex]]:
    with ExitStack() as stack:
        passages, vectors = Passages.open(CORPUS), Vectors.open(VECTORS)
        if vectors.rows != len(passages):
            raise IndexMismatch(
                f"{VECTORS} holds {vectors.rows} vectors, {CORPUS} {len(passages)} passages; run `dvc repro embed`"
            )
        opened = partial(PassageIndex.open, INDEX, params.index, identity=vectors.identity)
        index = stack.enter_context(distributed.held_by_main(opened))
        yield passages, vectors, index


def _dense(
    params: Params,
    encoder: Encoder,
    index: PassageIndex,
    vectors: Vectors,
    passages: Passages,
    *,
    history: bool,
    sampling: bool,
    candidates: str = "",
) -> DensePolicy:
    section = params.retriever
    return DensePolicy(
        encoder=encoder,
        index=index,
        vectors=vectors,
        passages=passages,
        k=section.k,
        pool=section.pool,
        temperature=section.temperature,
        candidates=candidates or section.candidates,
        style=section.state,
        history=history,
        max_tokens=section.max_tokens,
        sampling=torch.Generator().manual_seed(params.seed) if sampling else None,
        fusion=fusion_of(section.search, section.fusion, section.weights),
    )


def build_towers(params: Params, folder: Path) -> TwoTowerPolicy:
    """The two towers of a trained adapter or of a merged model, without a corpus: whoever plays brings the documents.

    Raises:
        ModelError: the folder holds no tower of actions; it was trained by another method.
    """
    if not (folder / "action").exists():
        raise ModelError(f"{folder} holds no tower of actions (folder action); train with train.method: pqn")
    facts = read_json(folder / "harr.json") if (folder / "harr.json").exists() else {}
    told = facts.get("positions", params.retriever.positions)
    if told != params.retriever.positions:
        raise ModelError(
            f"{folder} was trained with positions {told}, params.yaml says {params.retriever.positions}; "
            "set retriever.positions to what it was trained with"
        )
    return _towers(params, _trained(params, folder), _trained(params, folder / "action"), None, sampling=False)


def _trained(params: Params, folder: Path) -> Encoder:
    """An encoder from the folder of an adapter or of a merged model.

    Raises:
        ModelError: there is no such folder.
    """
    if not folder.is_dir():
        raise ModelError(f"trained model {folder} does not exist; run `dvc repro`, or name a folder that does")
    if (folder / "modules.json").exists():
        return build_encoder(params, str(folder))
    encoder = build_encoder(params)
    load_adapter(encoder, folder)
    return encoder


def _towers(
    params: Params, states: Encoder, actions: Encoder, passages: Passages | None, *, sampling: bool
) -> TwoTowerPolicy:
    return TwoTowerPolicy(
        states=states,
        actions=actions,
        passages=passages,
        mode=params.retriever.positions,
        temperature=params.retriever.temperature,
        max_tokens=params.retriever.max_tokens,
        sampling=torch.Generator().manual_seed(params.seed) if sampling else None,
    )


def _check_encoder(encoder: Encoder, vectors: Vectors) -> None:
    if encoder.identity != vectors.manifest["encoder"]:
        raise IndexMismatch(
            f"{VECTORS} was made by encoder {vectors.manifest['encoder']}, but params.yaml names {encoder.name} "
            f"({encoder.identity}); run `dvc repro`, or set encoder back"
        )


def _check_ids(questions: Sequence[Question], passages: Passages) -> None:
    named = {pid for question in questions for pid in (*question.gold_ids, *question.candidate_ids)}
    missing = sorted(named - set(passages.rows_of(named)))
    if missing:
        raise CorpusError(
            f"{len(missing)} passage ids of the questions are not in {CORPUS} (first: {', '.join(missing[:3])}); "
            "use questions of this corpus, or download the corpus they belong to"
        )
