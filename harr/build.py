"""The one place where names in params.yaml become objects."""

import platform
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from harr import processes
from harr.corpus.store import Passages, read_questions
from harr.errors import CorpusError, IndexMismatch, ModelError
from harr.files import fingerprint, read_json, read_manifest, sha256
from harr.generation.cache import CachedGenerator
from harr.generation.local import LocalGenerator
from harr.generation.scripted import Scripted as ScriptedGenerator
from harr.generation.server import ServerGenerator
from harr.generation.shared import SharedGenerator
from harr.params import Local, NoGenerator, Params, Pick, Scripted, Server, SmallLM
from harr.pipelines.multistep import multistep
from harr.pipelines.pick import pick
from harr.pipelines.react import react
from harr.pipelines.search_r1 import search_r1
from harr.policies.adapter import load_adapter
from harr.policies.dense import DensePolicy
from harr.policies.towers import TowersPolicy
from harr.retrieval.embed import computing, embed_shard
from harr.retrieval.encoder import Encoder
from harr.retrieval.hybrid import DENSE, HybridRetriever, fusion_of
from harr.retrieval.index import PassageIndex
from harr.retrieval.served import ServedEncoder
from harr.retrieval.sparse import BM25Retriever
from harr.retrieval.vectors import Vectors
from harr.scoring.mix import SIMILARITY, Reward
from harr.scoring.similarity import Encode
from harr.setup import Setup
from harr.types import Generator, Pipeline, Question, Retriever

NO_HISTORY = ("frozen", "rl_no_history")
"""Arms that see the current query only."""
FIXED = {"bm25": "sparse", "hybrid": "hybrid"}
"""Arms that rank as the named search does; nothing of them is ever trained."""
CORPUS, VECTORS, INDEX = Path("data/corpus"), Path("data/vectors"), Path("data/index")
GENERATOR, COMPLETIONS = Path("models/generator"), Path("work/completions")
_HELD = threading.local()
"""What a worker embeds with; it is kept from one shard to the next, as loading it may take longer than a shard."""


def build_encoder(params: Params, model: str = "") -> Encoder:
    """The encoder of params.yaml, or another ``model`` with the same limits and prompts."""
    section = params.encoder
    return Encoder(
        model or section.model,
        max_tokens=section.max_tokens,
        query_prompt=section.query_prompt,
        passage_prompt=section.passage_prompt,
        device=processes.device(),
    )


def build_served_encoder(params: Params, encoder: Encoder) -> ServedEncoder | None:
    """The server that embeds passages in place of ``encoder``, where params.yaml names one."""
    section = params.encoder
    return ServedEncoder(encoder, section.base_url, section.key_variable) if section.base_url else None


def embed_as_worker(params: Params, corpus: Path, folder: Path, number: int) -> dict[str, Any]:
    """:func:`harr.retrieval.embed.embed_shard` in a thread or process that was given nothing but paths.

    Raises:
        DamagedFile: ``corpus`` or the manifest in ``folder`` cannot be read here.
        IndexMismatch: corpus or encoder are not those of the manifest.
    """
    manifest = read_manifest(folder, "dvc repro embed", shards=False)
    wanted = (manifest["identity"], folder)
    if getattr(_HELD, "wanted", None) != wanted:
        passages, encoder = Passages.open(corpus), build_encoder(params)
        if (encoder.identity, passages.identity) != (manifest["encoder"], manifest["corpus"]):
            raise IndexMismatch(
                f"worker on {platform.node()} has encoder {encoder.identity} and corpus {passages.identity}, but "
                f"{folder} is of {manifest['encoder']} and {manifest['corpus']}; give it the same model and folder"
            )
        used = computing(encoder, manifest["dtype"], build_served_encoder(params, encoder))
        _HELD.tools, _HELD.wanted = (passages, encoder, used), wanted
    passages, encoder, used = _HELD.tools
    return embed_shard(passages, encoder, used, params.embed, folder, number)


def build_pipeline(params: Params) -> Pipeline:
    """The pipeline with its settings filled in."""
    section = params.pipeline
    match section.name:
        case "pick":
            return partial(pick, picks=section.picks, depth=section.depth, reader=section.reader)
        case "react":
            return partial(react, max_searches=section.max_searches)
        case "search_r1":
            return partial(search_r1, max_searches=section.max_searches, template=section.template)
        case "multistep":
            return partial(multistep, max_hops=section.max_hops)


def build_training_pipeline(params: Params) -> Pipeline:
    """As ``build_pipeline``; a pick without the tail of its ranking, which would only add noise."""
    if isinstance(params.pipeline, Pick):
        return partial(pick, picks=params.pipeline.picks, reader=params.pipeline.reader)
    return build_pipeline(params)


def build_generator(params: Params) -> Generator | None:
    """The player that writes, where the pipeline needs one.

    What a server or a local model wrote is kept in ``COMPLETIONS``, for all stages; a model that changes its
    folder starts anew.
    """
    return _generator(params.generator, params.seed)


def _generator(section: Scripted | Server | Local | SmallLM | NoGenerator, seed: int) -> Generator | None:
    if section.kind == "none":
        return None
    return SharedGenerator(lambda: _writer(section, seed)) if processes.count() > 1 else _writer(section, seed)


def _writer(section: Scripted | Server | Local | SmallLM, seed: int) -> Generator:
    writer: Generator
    match section.kind:
        case "scripted":
            return ScriptedGenerator()
        case "server":
            writer, known = ServerGenerator(section, seed=seed), section.base_url
        case "local" | "small_lm":
            folder = _writer_folder(section)
            known = _stamps(folder)
            writer = LocalGenerator(
                str(folder),
                temperature=section.temperature,
                max_tokens=section.max_tokens,
                batch_size=section.batch_size,
                seed=seed,
            )
    shape = section.model_dump(include={"kind", "model", "temperature", "max_tokens", "extra_body"})
    return CachedGenerator(writer, COMPLETIONS / f"{fingerprint([shape, known, seed])}.sqlite")


def _writer_folder(section: Scripted | Server | Local | SmallLM | NoGenerator) -> Path:
    """Where a local model's files are; a place that does not exist for one that has none."""
    return Path(section.model).expanduser() if section.kind == "local" else GENERATOR


def _stamps(folder: Path) -> str:
    """Name, size and time of a model's files: cheaper than hashes of gigabytes."""
    files = sorted(path for path in folder.glob("*") if path.is_file()) if folder.is_dir() else []
    return fingerprint([(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in files])


def build_reward(params: Params) -> Reward:
    """The weighted reward terms, with the judge or the encoder as it came where one is named."""
    section = params.reward
    judge = _generator(section.judge, params.seed) if section.judge else None
    encode = _encode(params) if SIMILARITY in section.terms else None
    return Reward(section.terms, judge, encode, mix=section.mix, filter_by_mean=section.filter_by_mean)


def _encode(params: Params) -> Encode:
    """Texts to vectors by an encoder of its own, which nothing trains; several processes share the work."""
    encoder = build_encoder(params)
    return lambda texts: processes.gathered(texts, partial(encoder.encode, prompt=encoder.query_prompt))


def of_arm(params: Params, arm: str) -> Params:
    """The parameters that an arm is trained and played with: those of the run, but for ``no_positions``."""
    if arm != "no_positions":
        return params
    return params.model_copy(update={"retriever": params.retriever.model_copy(update={"positions": "none"})})


@contextmanager
def open_setup(params: Params, questions: Path, *, history: bool = True) -> Iterator[Setup]:
    """Everything that filter and train need; the retriever samples, and sees the ``history`` or not.

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
            retriever=_towers(params, encoder, build_encoder(params), passages, sampling=True)
            if params.train.method == "pqn"
            else _dense(params, encoder, index, vectors, passages, history=history, sampling=True),
            generator=build_generator(params),
            reward=build_reward(params),
            identity=fingerprint(
                {
                    "game": game,
                    "history": history,
                    "index": vectors.identity,
                    "questions": sha256(questions),
                    "writer": _stamps(_writer_folder(params.generator)),
                }
            ),
        )


@contextmanager
def open_players(
    params: Params, questions: Sequence[Question], *, candidates: str, sampling: bool = False
) -> Iterator[Callable[[str, Path | None], Retriever]]:
    """The players that evaluation compares: ``player(arm, trained)``; all take their best K, or sample.

    ``bm25``: full text. ``frozen``: the base encoder, current query only. ``hybrid``: both rankings of the corpus,
    fused. ``history``: the base encoder with the history. The others are ``trained``: the folder of an adapter or
    of a merged model; all but ``rl_no_history`` see the history.

    Raises:
        CorpusError: a question's gold or given passage is not in the corpus.
        IndexMismatch: data/vectors or data/index belong to another encoder or corpus.
    """
    with _open_index(params) as (passages, vectors, index):
        _check_ids(questions, passages)
        base = build_encoder(params)
        _check_encoder(base, vectors)

        def player(arm: str, trained: Path | None) -> Retriever:
            if arm in FIXED:
                return _fixed(params, FIXED[arm], base, index, vectors, passages, candidates)
            if trained and (trained / "action").exists():
                actions = _trained(params, trained / "action")
                return _towers(of_arm(params, arm), _trained(params, trained), actions, passages, sampling=sampling)
            encoder = _trained(params, trained) if trained else base
            return _dense(
                params,
                encoder,
                index,
                vectors,
                passages,
                history=arm not in NO_HISTORY,
                sampling=sampling,
                candidates=candidates,
            )

        yield player


@contextmanager
def open_search(params: Params) -> Iterator[Retriever]:
    """The retriever of a run in which another player learns: ``retriever.search`` of the current query, as it ranks.

    Raises:
        IndexMismatch: data/vectors or data/index belong to another encoder or corpus.
    """
    with _open_index(params) as (passages, vectors, index):
        encoder = build_encoder(params)
        _check_encoder(encoder, vectors)
        section = params.retriever
        yield _fixed(params, section.search, encoder, index, vectors, passages, section.candidates)


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
    if search == "hybrid":
        fusion = fusion_of("hybrid", section.fusion, section.weights)
        return HybridRetriever(dense, sparse, fusion, k=section.k, depth=section.pool)
    return dense if search == "dense" else sparse


@contextmanager
def _open_index(params: Params) -> Iterator[tuple[Passages, Vectors, PassageIndex]]:
    with ExitStack() as stack:
        passages, vectors = Passages.open(CORPUS), Vectors.open(VECTORS)
        if vectors.rows != len(passages):
            raise IndexMismatch(
                f"{VECTORS} holds {vectors.rows} vectors, {CORPUS} {len(passages)} passages; run `dvc repro embed`"
            )
        opened = partial(PassageIndex.open, INDEX, params.index, identity=vectors.identity)
        index = stack.enter_context(processes.held_by_main(opened))
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


def build_towers(params: Params, folder: Path) -> TowersPolicy:
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
) -> TowersPolicy:
    return TowersPolicy(
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
