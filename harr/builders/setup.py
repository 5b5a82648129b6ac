"""All of params.yaml becomes the players of a run: of those who learn, and of those who are compared."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch
from tqdm import tqdm

from harr.arms import Arm
from harr.builders.encoder import action_folder, build_encoder, made_for, query_section, trained_encoder
from harr.builders.pipeline import build_pipeline, build_reward, for_training
from harr.builders.places import Places
from harr.builders.retrievers import (
    Corpus,
    arm_function,
    dense_policy,
    fixed_retriever,
    function_retriever,
    open_corpus,
    reranked_retriever,
    source_retrievers,
    towers_policy,
)
from harr.builders.writers import (
    build_generator,
    build_samplers,
    build_writer,
    settings_of,
    stamps,
    untaught_folder,
    writer_folder,
    written_by,
)
from harr.compute.precision import resolved
from harr.corpus.passages import Passages, read_questions
from harr.embed.encoder import Encoder
from harr.embed.lean import lean
from harr.errors import CorpusError, IndexMismatch, ParamsError
from harr.index.kinds import built_as
from harr.io.files import fingerprint, sha256
from harr.params import Params
from harr.params.filter import PreferencesParams
from harr.rag.generation.sampler import Samplers
from harr.rag.generation.server import ServerSamplers
from harr.rag.retrieval.late_interaction import search_identity
from harr.rag.retrieval.rewritten import RULES as REWRITES, Rewritten, searching_for
from harr.rag.setup import Setup
from harr.rag.sources.client import WebSource
from harr.rag.sources.router import open_sources, source_facts
from harr.types import Generator, Question, Retriever


def arm_params(params: Params, arm: Arm) -> Params:
    """Return the parameters that an arm is trained and played with: those of the run, but for its overrides."""
    return params.model_copy(update={"retriever": params.retriever.model_copy(update=arm.overrides)})


@contextmanager
def open_setup(
    params: Params, places: Places, questions: Path, *, history: bool = True, validation: Path | None = None
) -> Iterator[Setup]:
    """Open everything that filter and train need; a retriever that learns samples, and sees the ``history`` or not.

    ``validation`` are the questions that ``train.validate_every`` asks for; None where nothing is trained.

    Where the language model learns there is no generator, but the ``writer`` that it begins from, and how it is
    sampled; and the retriever is ``retriever.search`` of the current query, as it ranks; or all ``sources``, where
    there are some.

    Raises:
        IndexMismatch: vectors or index belong to another encoder or corpus, or lack a source.
        ParamsError: a source cannot be asked.
    """
    web = open_sources(params.sources, places.searches)
    with open_corpus(params.index, places) as corpus:
        encoder = _checked_encoder(params, corpus, places)
        game = params.model_dump(include={"retriever", "pipeline", "generator", "reward"}, mode="json")
        if params.retriever.encoder:  # a folder may be made anew
            game["retriever"]["encoder"] = encoder.identity
        if params.sources:
            game["sources"] = source_facts(params.sources)
        writer, writes = writer_folder(params.generator, places), params.writer_learns
        if writes and params.pipeline.converses:
            written_by(params.generator, places).check()
        facts = {
            "game": game,
            "history": history,
            "index": search_identity(corpus.vectors.identity, params.retriever.late_interaction),
            "questions": sha256(questions),
            "writer": stamps(writer),
        }
        if kind := built_as(params.index):  # what is not exact finds other pools
            facts["index_kind"] = {**kind["kind"], "breadth": params.index.breadth}
        validating = _validation(params, validation)
        if validation and validating:
            facts["validation"] = sha256(validation)
        yield Setup(
            questions=_with_gold(read_questions(questions), corpus.passages),
            pipeline=build_pipeline(for_training(params.pipeline), params.generator, places),
            retriever=_learning_retriever(params, web, encoder, corpus, history=history),
            generator=None if writes else build_generator(params.generator, params.seed, places),
            reward=build_reward(params.reward, params.encoder, params.seed, places),
            identity=fingerprint(facts),
            index=str(facts["index"]),
            data=questions.parent,
            writer=str(writer) if writes else "",
            chat_template_kwargs=settings_of(params.generator),
            sample=_samplers(params, str(writer)) if writes else None,
            facts=facts,
            validation=validating,
            validation_pipeline=build_pipeline(params.pipeline, params.generator, places),
        )


def _validation(params: Params, path: Path | None) -> list[Question]:
    """Return the questions to validate with, where training does; of given passages, those that have some.

    Raises:
        ParamsError: there is none.
    """
    if path is None or not params.train.validate_every:
        return []
    questions = read_questions(path)
    if params.retriever.candidates == "question":
        questions = [question for question in questions if question.candidate_ids]
    if not questions:
        raise ParamsError(
            f"train.validate_every {params.train.validate_every}: {path} holds no question to play; set "
            "download.validation_questions and run `dvc repro`"
        )
    return questions


def _samplers(params: Params, model: str) -> Samplers | ServerSamplers:
    """Return the language model that training begins with, as the filter samples it: here, or on a server of it."""
    section, longest = params.filter.preferences or PreferencesParams(), params.filter.max_tokens
    if section.server:
        name = "filter.preferences.server"
        return ServerSamplers(section.server, max_tokens=longest, seed=params.seed, name=name)
    at_once = getattr(params.train, "sampled_at_once", section.sampled_at_once)
    alone = params.train.prefers  # a query that is compared with others is a text of its own
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
    if params.writer_learns:
        return fixed_retriever(section, section.search, encoder, corpus, section.candidates)
    if params.train.positions:
        return towers_policy(section, encoder, build_encoder(params.encoder), corpus.passages, params.seed)
    return dense_policy(section, encoder, corpus, section.candidates, history=history, seed=params.seed)


@contextmanager
def open_players(
    params: Params, places: Places, questions: Sequence[Question], *, candidates: str
) -> Iterator[Callable[[Arm, Path | None], Retriever]]:
    """Open what evaluation compares: ``player(arm, trained)`` is a retriever that takes its best K.

    ``trained`` is the folder of an adapter or of a merged model; without one the base encoder ranks. Where the language
    model learns, all arms search with ``retriever.search``, and differ in who writes (:func:`open_writer`). States are
    read in the number format that training computes in (``train.precision``).

    Raises:
        CorpusError: a question's gold or given passage is not in the corpus.
        IndexMismatch: vectors or index belong to another encoder or corpus, or lack a source.
        ParamsError: a source cannot be asked, or the function of an arm is not there.
    """
    web = open_sources(params.sources, places.searches)
    for arm in params.evaluate.arm_table.values():
        if arm.function:  # found missing before any other arm is played
            arm_function(arm)
    with open_corpus(params.index, places) as corpus:
        _check_ids(questions, corpus.passages, places)
        base = _checked_encoder(params, corpus, places)
        precision = resolved(getattr(params.train, "precision", ""))
        dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
        answering = lean(base, dtype)

        def player(arm: Arm, trained: Path | None) -> Retriever:
            found = searcher(arm, trained)
            return Rewritten(found, searching_for(REWRITES[arm.query])) if arm.query else found

        def searcher(arm: Arm, trained: Path | None) -> Retriever:
            section = arm_params(params, arm).retriever
            if arm.function:
                return function_retriever(arm, section, base, corpus, candidates)
            if params.sources:
                return source_retrievers(params.sources, web, section, answering, corpus, candidates)
            search = section.search if params.writer_learns else arm.search
            if search == "reranked" and params.evaluate.reranker:
                return reranked_retriever(section, params.evaluate.reranker, answering, corpus, candidates)
            if search:
                return fixed_retriever(section, search, answering, corpus, candidates)
            states = query_section(params.encoder, section.encoder)
            encoder = trained_encoder(states, trained) if trained else base
            if trained and (tower := action_folder(trained)):
                return towers_policy(section, encoder, trained_encoder(params.encoder, tower), corpus.passages)
            policy = dense_policy(section, encoder, corpus, candidates, history=arm.history, trained=trained)
            return replace(policy, encoder=lean(policy.encoder, dtype))

        yield player


def open_writer(params: Params, places: Places, arm: Arm, trained: Path | None) -> Generator:
    """Return the language model of an arm, where it is what learns; it writes its most likely tokens.

    ``trained`` is the folder of an adapter or of a model; without one the arm writes as training began. An arm that is
    ``untaught`` writes as before stage generator, where what that stage left is an arm of its own (not of LeReT).
    """
    section = params.generator
    begun = untaught_folder if arm.untaught and "warmstart" in params.train.arms else writer_folder
    max_tokens = getattr(params.train, "max_tokens", 0)
    return build_writer(section, trained or begun(section, places), max_tokens, params.seed, places)


def open_samplers(params: Params, places: Places, trained: Path | None, samples: int) -> list[Generator]:
    """Return the language model of an arm as it samples when it is trained, once for each of so many samples."""
    folder = trained or writer_folder(params.generator, places)
    seeds = [params.seed * 1_000_003 + number for number in range(samples)]
    temperature, longest = (getattr(params.train, name) for name in ("temperature", "max_tokens"))
    return build_samplers(params.generator, folder, longest, temperature, seeds, places)


def _checked_encoder(params: Params, corpus: Corpus, places: Places) -> Encoder:
    """Return the encoder that reads states, where the vectors are of ``encoder`` and it was made for them."""
    encoder, made = build_encoder(params.encoder), corpus.vectors.manifest["encoder"]
    if encoder.identity != made:
        raise IndexMismatch(
            f"{places.vectors} was made by encoder {made}, but params.yaml names "
            f"{encoder.name} ({encoder.identity}); run `dvc repro`, or set encoder back"
        )
    if not (name := params.retriever.encoder):
        return encoder
    section = query_section(params.encoder, name)
    if (wanted := made_for(name)) != made:
        raise IndexMismatch(
            f"retriever.encoder {name} reads states for vectors of encoder {wanted}, but {places.vectors} was made by "
            f"{made}; run `harr bridge` again, or name another folder"
        )
    return build_encoder(section)


def _with_gold(questions: Sequence[Question], passages: Passages) -> list[Question]:
    """Return the questions whose gold passages are in the corpus: some may have gone since these were kept."""
    known = passages.rows_of({pid for question in questions for pid in question.gold_ids})
    left = [question for question in questions if all(pid in known for pid in question.gold_ids)]
    if len(left) < len(questions):
        tqdm.write(f"{len(questions) - len(left)} of {len(questions)} questions left out: their gold passages are gone")
    return left


def _check_ids(questions: Sequence[Question], passages: Passages, places: Places) -> None:
    named = {pid for question in questions for pid in (*question.gold_ids, *question.candidate_ids)}
    missing = sorted(named - set(passages.rows_of(named)))
    if missing:
        raise CorpusError(
            f"{len(missing)} passage ids of the questions are not in {places.corpus} (first: {', '.join(missing[:3])})"
            "; use questions of this corpus, or download the corpus they belong to"
        )
