"""The one place where names in params.yaml become objects."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import torch

from harr.corpus.store import Passages, read_questions
from harr.errors import CorpusError, IndexMismatch
from harr.files import fingerprint, sha256
from harr.generation.scripted import Scripted
from harr.generation.server import ServerGenerator
from harr.params import NoGenerator, Params, Pick, Server
from harr.pipelines.multistep import multistep
from harr.pipelines.pick import pick
from harr.policies.adapter import load_adapter
from harr.policies.dense import DensePolicy
from harr.retrieval.encoder import Encoder
from harr.retrieval.index import PassageIndex
from harr.retrieval.sparse import BM25Retriever
from harr.retrieval.vectors import Vectors
from harr.scoring.rewards import weighted
from harr.setup import Setup
from harr.types import Generator, Pipeline, Question, Retriever

CORPUS, VECTORS, INDEX = Path("data/corpus"), Path("data/vectors"), Path("data/index")


def build_encoder(params: Params, model: str = "") -> Encoder:
    """The encoder of params.yaml, or another ``model`` with the same limits and prompts."""
    section = params.encoder
    return Encoder(
        model or section.model,
        max_tokens=section.max_tokens,
        query_prompt=section.query_prompt,
        passage_prompt=section.passage_prompt,
    )


def build_pipeline(params: Params) -> Pipeline:
    """The pipeline with its settings filled in."""
    if isinstance(params.pipeline, Pick):
        return partial(pick, picks=params.pipeline.picks, depth=params.pipeline.depth)
    return partial(multistep, max_hops=params.pipeline.max_hops)


def build_training_pipeline(params: Params) -> Pipeline:
    """As ``build_pipeline``; a pick without the tail of its ranking, which would only add noise."""
    if isinstance(params.pipeline, Pick):
        return partial(pick, picks=params.pipeline.picks)
    return build_pipeline(params)


def build_generator(params: Params) -> Generator | None:
    """The player that writes, where the pipeline needs one."""
    if isinstance(params.generator, Server):
        return ServerGenerator(params.generator)
    return None if isinstance(params.generator, NoGenerator) else Scripted()


@contextmanager
def open_setup(params: Params, questions: Path) -> Iterator[Setup]:
    """Everything that filter and train need; the retriever samples and sees the history.

    Raises:
        IndexMismatch: data/vectors or data/index belong to another encoder or corpus.
    """
    with _open_index(params) as (passages, vectors, index):
        encoder = build_encoder(params)
        _check_encoder(encoder, vectors)
        game = params.model_dump(include={"retriever", "pipeline", "generator", "reward"}, mode="json")
        yield Setup(
            questions=read_questions(questions),
            pipeline=build_training_pipeline(params),
            retriever=_dense(params, encoder, index, vectors, passages, history=True, sampling=True),
            generator=build_generator(params),
            reward=weighted(params.reward.terms),
            identity=fingerprint({"game": game, "index": vectors.identity, "questions": sha256(questions)}),
        )


@contextmanager
def open_arms(
    params: Params,
    questions: Sequence[Question],
    *,
    arms: Sequence[str],
    adapter: Path | None,
    model: Path | None,
    candidates: str,
) -> Iterator[Mapping[str, Retriever]]:
    """The players that evaluation compares, by arm; all take their best K.

    ``bm25``: full text. ``frozen``: the base encoder, current query only. ``history``: the base
    encoder with the history. ``full``: the trained one, from ``adapter`` or a merged ``model`` folder.

    Raises:
        CorpusError: a question's gold or given passage is not in the corpus.
        IndexMismatch: data/vectors or data/index belong to another encoder or corpus.
    """
    with _open_index(params) as (passages, vectors, index):
        _check_ids(questions, passages)
        encoder = build_encoder(params)
        _check_encoder(encoder, vectors)
        dense = partial(_dense, params, index=index, vectors=vectors, passages=passages, sampling=False)
        players: dict[str, Retriever] = {
            "bm25": BM25Retriever(index, passages, params.retriever.k, candidates),
            "frozen": dense(encoder, history=False, candidates=candidates),
            "history": dense(encoder, history=True, candidates=candidates),
        }
        if "full" in arms:
            trained = build_encoder(params, str(model) if model else "")
            if adapter and not model:
                load_adapter(trained, adapter)
            players["full"] = dense(trained, history=True, candidates=candidates)
        yield {arm: players[arm] for arm in arms}


@contextmanager
def _open_index(params: Params) -> Iterator[tuple[Passages, Vectors, PassageIndex]]:
    with ExitStack() as stack:
        passages, vectors = Passages.open(CORPUS), Vectors.open(VECTORS)
        if vectors.rows != len(passages):
            raise IndexMismatch(
                f"{VECTORS} holds {vectors.rows} vectors, {CORPUS} {len(passages)} passages; run `dvc repro embed`"
            )
        index = stack.enter_context(PassageIndex.open(INDEX, params.index, identity=vectors.identity))
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
