"""Build from params.yaml what filter and train need: the players that learn, their questions and their reward."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tqdm import tqdm

from harr.builders.encoder import build_encoder, query_section
from harr.builders.fit import check_encoder
from harr.builders.generators import build_generator, language_model_facts, language_model_folder, settings_of, stamps
from harr.builders.pipeline import build_pipeline, build_reward, for_training
from harr.builders.places import Places
from harr.builders.retrievers import (
    dense_policy,
    fixed_retriever,
    open_corpus,
    search_identity,
    source_retrievers,
    towers_policy,
)
from harr.corpus.passages import Passages, read_questions
from harr.embed.encoder import Encoder
from harr.errors import ParamsError
from harr.index.corpus import Corpus
from harr.index.kinds import describe_kind
from harr.io.files import fingerprint, sha256
from harr.params import Params
from harr.params.filter import PreferencesParams
from harr.rag.generation.sampler import Samplers
from harr.rag.generation.server import ServerSamplers
from harr.rag.setup import Setup
from harr.rag.sources.client import WebSource
from harr.rag.sources.router import open_sources, source_facts
from harr.types import Question, Retriever


@contextmanager
def open_setup(
    params: Params, places: Places, questions: Path, *, history: bool = True, validation: Path | None = None
) -> Iterator[Setup]:
    """Open everything that filter and train need; a retriever that learns samples, and may see the ``history``.

    ``validation`` is the file of validation questions (``train.validation.every``); None if nothing is trained.

    If the language model learns, the setup has no generator but the initial ``language_model`` and its sampler, and the
    retriever is a fixed ``retriever.search`` on the current query, or all ``sources`` if there are any.

    Raises:
        IndexMismatch: vectors or index belong to another encoder or corpus, or lack a source.
        ParamsError: a source cannot be asked.
    """
    web = open_sources(params.sources, places.searches)
    with open_corpus(params.index, places) as corpus:
        encoder = open_encoder(params, corpus, places)
        game = params.model_dump(include={"retriever", "pipeline", "generator", "reward"}, mode="json")
        if params.retriever.encoder:  # a folder may be rewritten
            game["retriever"]["encoder"] = encoder.identity
        if params.sources:
            game["sources"] = source_facts(params.sources)
        language_model, writes = language_model_folder(params.generator, places), params.language_model_learns
        if writes and params.pipeline.converses:
            language_model_facts(params.generator, places).check()
        facts = {
            "game": game,
            "history": history,
            "index": search_identity(corpus.vectors.identity, params.retriever),
            "questions": sha256(questions),
            "language_model": stamps(language_model),
        }
        if kind := describe_kind(params.index):  # an approximate index finds other pools
            facts["index_kind"] = {**kind, "breadth": params.index.breadth}
        validating = _validation(params, validation)
        if validation and validating:
            facts["validation"] = sha256(validation)
        if writes:
            facts["samples"] = {name: getattr(params.train, name, None) for name in ("temperature", "max_tokens")}
        yield Setup(
            questions=_with_gold(read_questions(questions), corpus.passages),
            pipeline=build_pipeline(for_training(params.pipeline), params.generator, places),
            retriever=_learning_retriever(params, web, encoder, corpus, history=history),
            generator=None if writes else build_generator(params.generator, params.seed, places),
            reward=build_reward(params.reward, params.encoder, params.seed, places),
            identity=fingerprint(facts),
            index=str(facts["index"]),
            data=questions.parent,
            language_model=str(language_model) if writes else "",
            chat_template_kwargs=settings_of(params.generator),
            sample=_samplers(params, str(language_model)) if writes else None,
            temperature=getattr(params.train, "temperature", 1.0),
            validation=validating,
            validation_pipeline=build_pipeline(params.pipeline, params.generator, places),
        )


def _validation(params: Params, path: Path | None) -> list[Question]:
    """Return the validation questions if training validates; with given passages, only those that have some.

    Raises:
        ParamsError: there is no such question.
    """
    if path is None or not params.train.validation.every:
        return []
    questions = read_questions(path)
    if params.retriever.candidates == "question":
        questions = [question for question in questions if question.candidate_ids]
    if not questions:
        raise ParamsError(
            f"train.validation.every {params.train.validation.every}: {path} holds no question to play; set "
            "download.validation_questions and run `dvc repro`"
        )
    return questions


def _samplers(params: Params, model: str) -> Samplers | ServerSamplers:
    """Return the initial language model as the filter samples it: here or on its server."""
    section, longest = params.filter.preferences or PreferencesParams(), getattr(params.train, "max_tokens", 0)
    if section.server:
        name = "filter.preferences.server"
        return ServerSamplers(section.server, max_tokens=longest, seed=params.seed, name=name)
    at_once = getattr(params.train, "sampled_at_once", section.sampled_at_once)
    alone = params.train.prefers  # a query that is compared with others is a separate text
    return Samplers(
        model,
        max_tokens=longest,
        batch_size=at_once,
        seed=params.seed,
        grows=not alone,
        chat_template_kwargs=settings_of(params.generator),
    )


def _learning_retriever(
    params: Params, web: Mapping[str, WebSource], encoder: Encoder, corpus: Corpus, *, history: bool
) -> Retriever:
    """Return what searches while a method trains."""
    section = params.retriever
    if params.sources:
        return source_retrievers(params.sources, web, section, encoder, corpus, section.candidates)
    if params.language_model_learns:
        return fixed_retriever(section, section.search, encoder, corpus, section.candidates)
    if params.train.positions:
        return towers_policy(section, encoder, build_encoder(params.encoder), corpus.passages, params.seed)
    return dense_policy(section, encoder, corpus, section.candidates, history=history, seed=params.seed)


def open_encoder(params: Params, corpus: Corpus, places: Places) -> Encoder:
    """Return the encoder that reads states, after checking that ``encoder`` made the vectors and that it fits them.

    Raises:
        IndexMismatch, ModelError: as :func:`harr.builders.fit.check_encoder`.
    """
    encoder, model = build_encoder(params.encoder), params.retriever.encoder
    check_encoder(encoder, model, corpus.vectors.manifest["encoder"], places.vectors)
    return build_encoder(query_section(params.encoder, model)) if model else encoder


def _with_gold(questions: Sequence[Question], passages: Passages) -> list[Question]:
    """Return the questions whose gold passages are still in the corpus."""
    rows = passages.rows_of({pid for question in questions for pid in question.gold_ids})
    good = [question for question in questions if all(pid in rows for pid in question.gold_ids)]
    if len(good) < len(questions):
        tqdm.write(f"{len(questions) - len(good)} of {len(questions)} questions left out: their gold passages are gone")
    return good
