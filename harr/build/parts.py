"""Names in params.yaml become objects: here what needs no index, in ``harr/build/players.py`` what searches one."""

import platform
import threading
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

from harr.arms import Arm
from harr.compute import distributed
from harr.corpus.passages import Passages
from harr.embed.encoder import Encoder
from harr.embed.served import ServedEncoder
from harr.embed.shards import computing, embed_shard
from harr.errors import IndexMismatch
from harr.io.files import fingerprint, read_manifest
from harr.params import Params
from harr.params.filter import PreferencesParams
from harr.params.generator import (
    LocalParams,
    NoGeneratorParams,
    ScriptedParams,
    ServerParams,
    SmallLMParams,
    WarmstartParams,
)
from harr.params.pipeline import PickParams
from harr.rag.generation.cache import CachedGenerator
from harr.rag.generation.llm_adapter import base_identity
from harr.rag.generation.local import LocalGenerator, load_tokenizer
from harr.rag.generation.sampler import Sampler, open_sampler, open_samplers
from harr.rag.generation.server import ServerGenerator
from harr.rag.generation.shared import SharedGenerator
from harr.rag.pipelines.leret import LeReT
from harr.rag.pipelines.multistep import multistep
from harr.rag.pipelines.pick import pick
from harr.rag.pipelines.r_search import r_search
from harr.rag.pipelines.react import react, react_passages
from harr.rag.pipelines.search_r1 import search_r1
from harr.rag.scoring.judge import readable
from harr.rag.scoring.reward import SIMILARITY, Reward
from harr.rag.scoring.similarity import Encode
from harr.types import Generate, Generator, Pipeline
from harr.world.scripted import Scripted as ScriptedGenerator

GENERATOR, COMPLETIONS = Path("models/generator"), Path("work/completions")
GeneratorSection = ScriptedParams | ServerParams | LocalParams | SmallLMParams | WarmstartParams | NoGeneratorParams
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
        device=distributed.device(),
    )


def build_served_encoder(params: Params, encoder: Encoder) -> ServedEncoder | None:
    """The server that embeds passages in place of ``encoder``, where params.yaml names one."""
    section = params.encoder
    return ServedEncoder(encoder, section.base_url, section.key_variable) if section.base_url else None


def embed_as_worker(params: Params, corpus: Path, folder: Path, number: int) -> dict[str, Any]:
    """:func:`harr.embed.shards.embed_shard` in a thread or process that was given nothing but paths.

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
            return partial(react_passages if section.shows == "passages" else react, max_searches=section.max_searches)
        case "search_r1":
            return partial(search_r1, max_searches=section.max_searches, template=section.template)
        case "r_search":
            return partial(
                r_search,
                tools=section.tools,
                max_nodes=section.max_nodes,
                max_words=section.max_words,
                budget=section.budget,
                template=section.template,
            )
        case "leret":
            model = writer_folder(params.generator)
            fits = _fits(model, section.max_tokens)
            shows = _fits(model, section.few_shot_tokens or section.max_tokens)
            return LeReT(section.hops, section.order, section.template, fits=fits, shows=shows)
        case "multistep":
            return partial(multistep, max_hops=section.max_hops)


def _fits(folder: Path, limit: int) -> Callable[[str], bool]:
    """Whether a text has at most so many tokens of the model in a folder, whose tokenizer is read when it is needed."""
    tokenizer = cache(lambda: load_tokenizer(str(folder)))
    # a token is a byte at least
    return lambda text: len(text.encode()) <= limit or len(tokenizer()(text)["input_ids"]) <= limit


def build_training_pipeline(params: Params) -> Pipeline:
    """As ``build_pipeline``; a pick without the tail of its ranking, which would only add noise."""
    if isinstance(params.pipeline, PickParams):
        return partial(pick, picks=params.pipeline.picks, reader=params.pipeline.reader)
    return build_pipeline(params)


def build_generator(params: Params) -> Generator | None:
    """The player that writes, where the pipeline needs one.

    What a server or a local model wrote is kept in ``COMPLETIONS``, for all stages; a model that changes its
    folder starts anew.
    """
    return _generator(params.generator, params.seed)


def build_sampler(params: Params) -> Sampler:
    """The language model that training begins with, as the filter samples it: every rollout on its own."""
    return open_sampler(
        str(writer_folder(params.generator)),
        temperature=params.filter.temperature,
        max_tokens=params.filter.max_tokens,
        batch_size=getattr(params.train, "sampled_at_once", 1),
        seed=params.seed,
    )


def build_samplers(params: Params, model: str) -> Callable[[float], Sampler]:
    """A language model as LeReT samples it, by temperature."""
    batch_size = (params.filter.preferences or PreferencesParams()).sampled_at_once
    return open_samplers(model, max_tokens=params.filter.max_tokens, batch_size=batch_size, seed=params.seed)


def build_writer(params: Params, arm: Arm, trained: Path | None) -> Generator:
    """Return the language model of an arm, where it is what learns; it writes its most likely tokens.

    ``trained`` is the folder of an adapter or of a model; without one the arm writes as training began. An arm that is
    ``untaught`` writes as before stage generator, but not LeReT's: its training begins with what that stage left.
    """
    section = params.generator
    begun = base_folder(section) if arm.untaught and params.train.method == "agent" else writer_folder(section)
    limits = {"max_tokens": getattr(params.train, "max_tokens", 0), "batch_size": getattr(section, "batch_size", 0)}
    model = LocalParams(kind="local", model=str(trained or begun), temperature=0.0, **limits)
    return _writer(model, params.seed)


def build_reader(params: Params) -> Generator | None:
    """The model that answers from what others have found; it writes its most likely tokens unless told otherwise."""
    section = params.evaluate.reader
    return None if section is None else _shared(lambda: _writer(_greedy(section), params.seed, "evaluate.reader"))


def build_judge(params: Params) -> Generator | None:
    """The model that grades answers; it writes its most likely tokens unless its temperature is given.

    Verdicts are kept as completions are; one that cannot be read is not, and is asked for anew by a later stage.
    """
    section = params.reward.judge
    if section is None:
        return None
    return _shared(lambda: _writer(_greedy(section), params.seed, "reward.judge", readable))


def _greedy(section: ScriptedParams | ServerParams | LocalParams) -> ScriptedParams | ServerParams | LocalParams:
    """The section with temperature 0, where it does not give one."""
    if isinstance(section, ScriptedParams) or "temperature" in section.model_fields_set:
        return section
    return section.model_copy(update={"temperature": 0.0})


def _generator(section: GeneratorSection, seed: int) -> Generator | None:
    return None if section.kind == "none" else _shared(lambda: _writer(section, seed))


def _shared(make: Callable[[], Generator]) -> Generator:
    return SharedGenerator(make) if distributed.count() > 1 else make()


def _writer(
    section: ScriptedParams | ServerParams | LocalParams | SmallLMParams | WarmstartParams,
    seed: int,
    name: str = "generator",
    keep: Callable[[Generate, str], bool] = lambda request, text: True,
) -> Generator:
    writer: Generator
    match section.kind:
        case "scripted":
            return ScriptedGenerator()
        case "server":
            writer, known = ServerGenerator(section, seed=seed, name=name), section.base_url
        case "local" | "small_lm" | "warmstart":
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
    return CachedGenerator(writer, COMPLETIONS / f"{fingerprint([shape, known, seed])}.sqlite", keep)


def writer_folder(section: GeneratorSection) -> Path:
    """Where a local model's files are; a place that does not exist for one that has none."""
    return Path(section.model).expanduser() if section.kind == "local" else GENERATOR


def base_folder(section: GeneratorSection) -> Path:
    """Where the model is that ``writer_folder`` was before stage generator trained it."""
    match section.kind:
        case "small_lm":
            return GENERATOR / "base"
        case "warmstart":
            return Path(section.model).expanduser()
    return writer_folder(section)


def stamps(folder: Path) -> str:
    """Name, size and time of a model's files: cheaper than hashes of gigabytes. Of a hub name what is cached of it."""
    if not folder.is_dir():
        return base_identity(str(folder)) or fingerprint([])
    files = sorted(path for path in folder.glob("*") if path.is_file())
    return fingerprint([(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in files])


def build_reward(params: Params) -> Reward:
    """The weighted reward terms, with the judge or the encoder as it came where one is named."""
    section = params.reward
    encode = _encode(params) if SIMILARITY in section.terms else None
    return Reward(section.terms, build_judge(params), encode, mix=section.mix, filter_by_mean=section.filter_by_mean)


def _encode(params: Params) -> Encode:
    """Texts to vectors by an encoder of its own, which nothing trains; several processes share the work."""
    encoder = build_encoder(params)
    return lambda texts: distributed.gathered(texts, partial(encoder.encode, prompt=encoder.query_prompt))
