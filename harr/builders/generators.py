"""Build the players that write from their sections: generator, judge, reader, and the model that learns."""

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from harr.builders.places import Places
from harr.compute import distributed
from harr.errors import ModelError, one_line
from harr.io.files import fingerprint
from harr.io.model_folder import UNLOADABLE, language_model_path
from harr.params.functions import function_of
from harr.params.generator import (
    FunctionGeneratorParams,
    LocalParams,
    NoGeneratorParams,
    ServedParams,
    TrainedParams,
)
from harr.rag.generation.adapter import base_identity
from harr.rag.generation.cache import CachedGenerator
from harr.rag.generation.chat_template import check_conversations, turn_frame
from harr.rag.generation.local_model import LanguageModel, LocalGenerator, load_model, load_tokenizer
from harr.rag.generation.server import ServerGenerator
from harr.rag.generation.shared import SharedGenerator
from harr.rag.pipelines import LanguageModelFacts
from harr.rag.scoring.judge import is_readable
from harr.types import Generate, Generator

Reader = ServedParams | LocalParams | FunctionGeneratorParams
GeneratorSection = Reader | TrainedParams | NoGeneratorParams


def build_generator(section: GeneratorSection, seed: int, places: Places) -> Generator | None:
    """Return the player that completes prompts, or None if the section's kind is ``none``.

    Completions of servers and local models are cached in ``places.completions`` for all stages; another model
    folder starts a new cache.
    """
    return None if section.kind == "none" else _share(lambda: _open_generator(section, seed, places))


def build_reader(
    section: Reader | None,
    seed: int,
    places: Places,
    name: str = "evaluate.reader",
) -> Generator | None:
    """Return the model of ``evaluate.reader``, or of another section ``name``; it decodes greedily unless the section
    sets a temperature."""
    return None if section is None else _share(lambda: _open_generator(_greedy(section), seed, places, name))


def build_judge(section: ServedParams | LocalParams | None, seed: int, places: Places) -> Generator | None:
    """Return the model that grades answers; it decodes greedily unless the section sets a temperature.

    Verdicts are cached like completions, except unreadable ones, for which a later stage asks again.
    """
    if section is None:
        return None
    return _share(lambda: _open_generator(_greedy(section), seed, places, "reward.judge", is_readable))


def build_local_generator(
    section: GeneratorSection, model: Path, max_tokens: int, seed: int, places: Places
) -> Generator:
    """Return a language model that learns, or has learnt, from its folder; it decodes greedily."""
    batch_size = getattr(section, "batch_size", 0)
    local = LocalParams(kind="local", model=str(model), temperature=0.0, max_tokens=max_tokens, batch_size=batch_size)
    return _open_generator(local.model_copy(update={"chat_template_kwargs": settings_of(section)}), seed, places)


def build_samplers(
    section: GeneratorSection, model: Path, max_tokens: int, temperature: float, seeds: Sequence[int], places: Places
) -> list[Generator]:
    """Return a trained language model from its folder, once for each of these sampling seeds."""
    settings, batch_size = settings_of(section), getattr(section, "batch_size", 0)
    language_model = LanguageModel(*load_model(str(model), chat_template_kwargs=settings), name=str(model))
    shape = {"model": str(model), "temperature": temperature, "max_tokens": max_tokens, "settings": settings}
    return [
        CachedGenerator(
            LocalGenerator(
                language_model, temperature=temperature, max_tokens=max_tokens, batch_size=batch_size, seed=seed
            ),
            places.completions / f"{fingerprint(['samples', shape, stamps(model), seed])}.sqlite",
        )
        for seed in seeds
    ]


def _greedy(section: Reader) -> Reader:
    """Return the section with temperature 0 if it does not set one."""
    if isinstance(section, FunctionGeneratorParams) or "temperature" in section.model_fields_set:
        return section
    return section.model_copy(update={"temperature": 0.0})


def _share(make: Callable[[], Generator]) -> Generator:
    return SharedGenerator(make) if distributed.count() > 1 else make()


def _open_generator(
    section: Reader | TrainedParams,
    seed: int,
    places: Places,
    name: str = "generator",
    keep: Callable[[Generate, str], bool] = lambda request, text: True,
) -> Generator:
    generator: Generator
    match section.kind:
        case "function":
            player: Generator = function_of(
                section.function,
                key=f"{name}.function",
                shape="returns a player (harr.types.Generator)",
                takes=0,
                settings=section.settings,
            )(**section.settings)
            return player
        case "server":
            generator, identity = ServerGenerator(section, seed=seed, name=name), section.server.urls[0]
        case "local" | "trained":
            folder = language_model_folder(section, places)
            identity = stamps(folder)
            generator = LocalGenerator(
                str(folder),
                temperature=section.temperature,
                max_tokens=section.max_tokens,
                batch_size=section.batch_size,
                seed=seed,
                chat_template_kwargs=settings_of(section),
            )
    shape = section.model_dump(include={"kind", "model", "temperature", "max_tokens", "extra_body"})
    if settings := settings_of(section):
        shape["chat_template_kwargs"] = settings
    return CachedGenerator(generator, places.completions / f"{fingerprint([shape, identity, seed])}.sqlite", keep)


def language_model_folder(section: GeneratorSection, places: Places) -> Path:
    """Return the folder of a local model's files; for a model without files, a path that does not exist."""
    return places.generator if section.taught or section.kind != "local" else language_model_path(section.model)


def base_folder(section: GeneratorSection, places: Places) -> Path:
    """Return the folder of the model as it was before stage generator taught it."""
    match section.kind:
        case "trained":
            return places.generator / "base"
        case "local":
            return language_model_path(section.model)
    return places.generator


def stamps(folder: Path) -> str:
    """Hash name, size and time of a model's files, not their gigabytes; for a hub name, what is cached of it."""
    if not folder.is_dir():
        return base_identity(str(folder)) or fingerprint([])
    files = sorted(path for path in folder.glob("*") if path.is_file())
    return fingerprint([(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in files])


def settings_of(section: GeneratorSection) -> dict[str, Any]:
    """Return a section's chat-template settings for a model in this process."""
    return getattr(section, "chat_template_kwargs", {})


def language_model_facts(section: GeneratorSection, places: Places) -> LanguageModelFacts:
    """Return what a pipeline may ask about the model that writes; its tokenizer is loaded when needed."""
    if isinstance(section, ServedParams):
        name, settings = section.tokenizer, section.extra_body.get("chat_template_kwargs", {})
    else:
        name, settings = str(language_model_folder(section, places)), settings_of(section)
    folder = language_model_path(name)

    @cache
    def tokenizer() -> Any:
        try:
            return load_tokenizer(str(folder) if folder.is_dir() else name, settings)
        except UNLOADABLE as error:
            raise ModelError(f"the tokenizer of model {name!r} cannot be loaded: {one_line(error, 200)}") from None

    def fits(limit: int) -> Callable[[str], bool]:
        # a token has at least one byte
        return lambda text: len(text.encode()) <= limit or len(tokenizer()(text)["input_ids"]) <= limit

    return LanguageModelFacts(
        fits,
        lambda: turn_frame(tokenizer(), name),
        lambda: check_conversations(tokenizer(), name),
        lambda text: len(tokenizer()(text, add_special_tokens=False)["input_ids"]),
    )
