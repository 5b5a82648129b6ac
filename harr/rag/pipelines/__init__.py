"""RAG pipelines: Python generators that yield searches and requests for text.

A new one is a module here, a section class in ``harr/params/pipeline.py`` and a line in :data:`PIPELINES`; the tags by
which its model acts go into ``harr/rag/pipelines/tags.py``. A pipeline of another package is named in params.yaml:
``pipeline: {name: function, function: "mine.agent:play"}``.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from inspect import isclass, isfunction, isgeneratorfunction
from typing import Any

from harr.errors import ParamsError
from harr.params.functions import function_of
from harr.rag.pipelines.leret import LeReT
from harr.rag.pipelines.multistep import multistep
from harr.rag.pipelines.pick import pick
from harr.rag.pipelines.r_search import r_search
from harr.rag.pipelines.react import react, react_passages
from harr.rag.pipelines.search_r1 import search_r1
from harr.types import Pipeline


@dataclass(frozen=True, slots=True)
class LanguageModelFacts:
    """Facts about a language model.

    ``fits(limit)`` tests whether a text has at most ``limit`` tokens; ``frame()`` is its chat template's text before
    and after the first user turn; ``check()`` raises if its conversations cannot be trained on; ``tokens(text)`` is a
    text's length.
    """

    fits: Callable[[int], Callable[[str], bool]]
    frame: Callable[[], tuple[str, str]]
    check: Callable[[], None]
    tokens: Callable[[str], int]


Build = Callable[[Any, LanguageModelFacts], Pipeline]
"""Builds a pipeline from section ``pipeline``."""


def _build_by_keywords(play: Callable[..., Any]) -> Build:
    """Return the builder of a pipeline whose keyword arguments are the parameters of its section."""
    return lambda section, facts: partial(play, **section.model_dump(exclude={"name"}))


def _build_growing(play: Callable[..., Any]) -> Build:
    """Return the builder of a pipeline that writes one growing text, which a template frames."""

    def build(section: Any, facts: LanguageModelFacts) -> Pipeline:
        template = facts.frame() if section.template == "chat" else section.template
        return partial(play, **section.model_dump(exclude={"name"}) | {"template": template})

    return build


def _build_react(section: Any, facts: LanguageModelFacts) -> Pipeline:
    if section.shows == "passages":
        return partial(react_passages, max_searches=section.max_searches)
    return partial(react, max_searches=section.max_searches, reader_sees=section.reader_sees)


def _build_leret(section: Any, facts: LanguageModelFacts) -> Pipeline:
    shows = facts.fits(section.few_shot_tokens or section.max_tokens)
    return LeReT(section.hops, section.order, section.template, fits=facts.fits(section.max_tokens), shows=shows)


def _build_function(section: Any, facts: LanguageModelFacts) -> Pipeline:
    shape = "takes a Question and yields Search and Generate"
    play = function_of(section.function, key="pipeline.function", shape=shape, settings=section.settings)
    if isclass(play) or (isfunction(play) and not isgeneratorfunction(play)):
        raise ParamsError(f"pipeline.function: {section.function} yields nothing; give one that {shape}")
    return partial(play, **section.settings)


PIPELINES: dict[str, Build] = {
    "multistep": _build_by_keywords(multistep),
    "react": _build_react,
    "search_r1": _build_growing(search_r1),
    "r_search": _build_growing(r_search),
    "pick": _build_by_keywords(pick),
    "leret": _build_leret,
    "function": _build_function,
}
