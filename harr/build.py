"""Names in params.yaml become objects: here what needs no index, in ``harr/players.py`` what searches one."""

import platform
import threading
from functools import partial
from pathlib import Path
from typing import Any

from harr import processes
from harr.corpus.store import Passages
from harr.errors import IndexMismatch
from harr.files import fingerprint, read_manifest
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
from harr.retrieval.embed import computing, embed_shard
from harr.retrieval.encoder import Encoder
from harr.retrieval.served import ServedEncoder
from harr.scoring.mix import SIMILARITY, Reward
from harr.scoring.similarity import Encode
from harr.types import Generator, Pipeline

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


def build_writer(params: Params, arm: str, trained: Path | None) -> Generator:
    """The language model of an arm, where it is what learns; it writes its most likely tokens.

    ``base``: before any training. ``warmstart``: as stage generator left it, and training began with it. The others
    are ``trained``: the folder of an adapter or of a model.
    """
    section = params.generator
    begun = writer_folder(section) / ("base" if arm == "base" and section.kind == "small_lm" else "")
    limits = {"max_tokens": getattr(params.train, "max_tokens", 0), "batch_size": getattr(section, "batch_size", 0)}
    model = Local(kind="local", model=str(trained or begun), temperature=0.0, **limits)
    return _writer(model, params.seed)


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
            folder = writer_folder(section)
            known = stamps(folder)
            writer = LocalGenerator(
                str(folder),
                temperature=section.temperature,
                max_tokens=section.max_tokens,
                batch_size=section.batch_size,
                seed=seed,
            )
    shape = section.model_dump(include={"kind", "model", "temperature", "max_tokens", "extra_body"})
    return CachedGenerator(writer, COMPLETIONS / f"{fingerprint([shape, known, seed])}.sqlite")


def writer_folder(section: Scripted | Server | Local | SmallLM | NoGenerator) -> Path:
    """Where a local model's files are; a place that does not exist for one that has none."""
    return Path(section.model).expanduser() if section.kind == "local" else GENERATOR


def stamps(folder: Path) -> str:
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
