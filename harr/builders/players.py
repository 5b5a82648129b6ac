"""The players that evaluation compares: each arm's retriever, and its language model if that is what learns."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import torch

from harr.arms import Arm, Ranking
from harr.builders.encoder import action_folder, query_section, trained_encoder
from harr.builders.generators import base_folder, build_local_generator, build_samplers, language_model_folder
from harr.builders.places import Places
from harr.builders.retrievers import (
    arm_retriever,
    fixed_retriever,
    open_corpus,
    retriever_function,
    source_retrievers,
    towers_policy,
    with_rewriting,
)
from harr.builders.setup import open_encoder
from harr.compute.precision import choose_precision
from harr.corpus.passages import Passages
from harr.embed.encoder import Encoder
from harr.embed.inference import for_inference
from harr.errors import CorpusError
from harr.index.corpus import Corpus
from harr.params import Params
from harr.params.loop import OptimizerParams
from harr.params.retriever import RetrieverParams
from harr.rag.retrieval.bounds import BOUNDS
from harr.rag.sources.client import WebSource
from harr.rag.sources.router import open_sources
from harr.types import Generator, Question, Retriever


def arm_params(params: Params, arm: Arm) -> Params:
    """Return the parameters that an arm is trained and played with: the run's, with the arm's overrides."""
    return params.model_copy(update={"retriever": params.retriever.model_copy(update=arm.overrides)})


@dataclass(frozen=True)
class Contest:
    """What all arms of an evaluation share."""

    params: Params
    corpus: Corpus
    base: Encoder
    dtype: torch.dtype
    """The number format in which training computes."""
    web: Mapping[str, WebSource]
    candidates: str

    @cached_property
    def answering(self) -> Encoder:
        """Return the base encoder with inference-only kernels."""
        return for_inference(self.base, self.dtype)

    def section(self, arm: Arm) -> RetrieverParams:
        """Return section ``retriever`` with an arm's overrides."""
        return arm_params(self.params, arm).retriever

    def search(self, arm: Arm) -> Ranking:
        """Return the search of an arm that does not learn; if the language model learns, all arms search alike."""
        return self.params.retriever.search if self.params.language_model_learns else arm.search


Make = Callable[[Contest, Arm, Path | None], Retriever]


def _function(contest: Contest, arm: Arm, trained: Path | None) -> Retriever:
    return arm_retriever(arm, contest.section(arm), contest.base, contest.corpus, contest.candidates)


def _bound(contest: Contest, arm: Arm, trained: Path | None) -> Retriever:
    section = contest.section(arm)
    base = fixed_retriever(section, section.search, contest.answering, contest.corpus, contest.candidates)
    return BOUNDS[arm.search](base, contest.corpus.passages, section.k)


def _sources(contest: Contest, arm: Arm, trained: Path | None) -> Retriever:
    parts = contest.section(arm), contest.answering, contest.corpus, contest.candidates
    return with_rewriting(source_retrievers(contest.params.sources, contest.web, *parts), arm)


def _encoder(contest: Contest, arm: Arm, trained: Path | None) -> Encoder:
    states = query_section(contest.params.encoder, contest.section(arm).encoder)
    return trained_encoder(states, trained) if trained else contest.base


def _towers(contest: Contest, arm: Arm, trained: Path | None) -> Retriever:
    assert trained
    actions = trained_encoder(contest.params.encoder, action_folder(trained) or trained)
    return towers_policy(contest.section(arm), _encoder(contest, arm, trained), actions, contest.corpus.passages)


def _of_ours(contest: Contest, arm: Arm, trained: Path | None) -> Retriever:
    own = replace(arm, search=contest.search(arm))
    reads_states = trained and not own.search
    encoder = for_inference(_encoder(contest, arm, trained), contest.dtype) if reads_states else contest.answering
    return arm_retriever(own, contest.section(arm), encoder, contest.corpus, contest.candidates, trained)


SEARCHERS: Sequence[tuple[Callable[[Contest, Arm, Path | None], object], Make]] = (
    (lambda contest, arm, trained: arm.function, _function),
    (lambda contest, arm, trained: arm.search in BOUNDS, _bound),
    (lambda contest, arm, trained: contest.params.sources, _sources),
    (lambda contest, arm, trained: trained and action_folder(trained), _towers),
    (lambda contest, arm, trained: True, _of_ours),
)
"""Conditions and what searches for an arm if they hold; the first match counts."""


@contextmanager
def open_players(
    params: Params, places: Places, questions: Sequence[Question], *, candidates: str
) -> Iterator[Callable[[Arm, Path | None], Retriever]]:
    """Open what evaluation compares: ``player(arm, trained)`` returns a retriever that takes its best K.

    ``trained`` is the folder of an adapter or merged model; without one the base encoder ranks. If the language
    model learns, all arms search with ``retriever.search`` and differ in who writes (:func:`open_generator`). States
    are encoded in training's number format (``train.optimizer.precision``).

    Raises:
        CorpusError: a question's gold or given passage is not in the corpus.
        IndexMismatch: vectors or index belong to another encoder or corpus, or lack a source.
        ParamsError: a source cannot be asked, or an arm's function does not exist.
    """
    web = open_sources(params.sources, places.searches)
    for arm in params.evaluate.arm_table.values():
        if arm.function:  # fails before any other arm is played
            retriever_function(arm.function)
    with open_corpus(params.index, places) as corpus:
        _check_ids(questions, corpus.passages, places)
        base = open_encoder(params, corpus, places)
        precision = choose_precision(getattr(params.train, "optimizer", OptimizerParams()).precision)
        dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
        contest = Contest(params, corpus, base, dtype, web, candidates)

        def player(arm: Arm, trained: Path | None) -> Retriever:
            make = next(make for fits, make in SEARCHERS if fits(contest, arm, trained))
            return make(contest, arm, trained)

        yield player


def open_generator(params: Params, places: Places, arm: Arm, trained: Path | None) -> Generator:
    """Return an arm's language model, if that is what learns; it decodes greedily.

    ``trained`` is the folder of an adapter or model; without one the arm writes with the model that training began
    from. An ``untaught`` arm writes with the model before stage generator, if that stage's model is its own arm (not
    for LeReT).
    """
    section = params.generator
    begun = base_folder if arm.untaught and "warmstart" in params.train.arms else language_model_folder
    max_tokens = getattr(params.train, "max_tokens", 0)
    return build_local_generator(section, trained or begun(section, places), max_tokens, params.seed, places)


def open_samplers(params: Params, places: Places, trained: Path | None, samples: int) -> list[Generator]:
    """Return an arm's language model with the temperature of training, once for each of the ``samples``."""
    folder = trained or language_model_folder(params.generator, places)
    seeds = [params.seed * 1_000_003 + number for number in range(samples)]
    temperature, longest = (getattr(params.train, name) for name in ("temperature", "max_tokens"))
    return build_samplers(params.generator, folder, longest, temperature, seeds, places)


def _check_ids(questions: Sequence[Question], passages: Passages, places: Places) -> None:
    ids = {pid for question in questions for pid in (*question.gold_ids, *question.candidate_ids)}
    missing = sorted(ids - set(passages.rows_of(ids)))
    if missing:
        raise CorpusError(
            f"{len(missing)} passage ids of the questions are not in {places.corpus} (first: {', '.join(missing[:3])})"
            "; use questions of this corpus, or download the corpus they belong to"
        )
