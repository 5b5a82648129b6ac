"""Sample queries hop by hop and compare them: the preferences that LeReT learns (arXiv 2410.23214, section 3).

Every question is tried with every prompt; a query's score is the average precision of the resulting ranking. One
of the outcomes is the context of the next hop. Questions are split into learnt and held-out ones before sampling.
Samples depend only on (seed, question, hop), so a resumed sampling ends with the same bytes.
"""

import json
import random
import shutil
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from harr.corpus.passages import read_questions, write_questions
from harr.errors import CorpusError, IndexMismatch, NoPreference
from harr.io.files import draft, fingerprint, note_published, read_json, read_jsonl, sha256, write_json, write_text
from harr.io.progress import bar, stoppable
from harr.params.filter import FilterParams, PreferencesParams
from harr.preferences.few_shot import find_prompts, select_prompts
from harr.preferences.pairs import documents_of, explain_none, next_try, preference_row, statistics_row
from harr.rag.pipelines.leret import LeReT, by_hop
from harr.rag.rollout import play
from harr.rag.scoring.ranking import average_precision
from harr.rag.setup import Setup
from harr.types import Generator, Log, Passage, Question, Retrieval

Row = dict[str, Any]
Sample = Callable[[float], Generator]
"""A function from a temperature to the language model sampled at it."""
REPEATED = ("manifest.json", "prompts.json", "held_out.jsonl")
"""Files needed to sample the same questions again."""


def collect_preferences(
    params: FilterParams, setup: Setup, out: Path, work: Path, log: Log, seed: int
) -> dict[str, float]:
    """Sample queries for stage filter; see :func:`sample_preferences` for outputs, figures and errors."""
    assert setup.sample is not None
    section = params.preferences or PreferencesParams()
    limits = {"target": params.target, "batch_size": params.batch_size}
    return sample_preferences(section, setup, setup.sample, out, work, log, seed, **limits)


def sample_preferences(
    params: PreferencesParams,
    setup: Setup,
    sample: Sample,
    out: Path,
    work: Path,
    log: Log,
    seed: int,
    *,
    target: int = 0,
    batch_size: int = 64,
) -> dict[str, float]:
    """Sample queries for at most ``target`` questions (0: all), and write the preferences to the folder ``out``.

    ``prompts.json``: the prompts. ``preferences.jsonl``: a row per prompt that teaches, ``{id, question_id, hop, split,
    prompt, responses, scores, pairs, sft_target}``. ``questions.jsonl`` and ``held_out.jsonl``: questions to learn from
    and the others. ``statistics.jsonl``: all sampled questions. ``manifest.json``: settings, seed, and index
    identity. ``figures.json``: the returned figures.

    Returns:
        Counts of questions, prompts and pairs, and the share of prompts that teach.

    Raises:
        CorpusError: there are too few questions, or no demonstrations. NoPreference: there is nothing to learn.
        ServiceUnavailable: the retriever cannot be reached; finished batches are in ``work``.
    """
    program = setup.pipeline
    assert isinstance(program, LeReT)
    settings = params.model_dump(exclude={"server"}) | {"target": target, "batch_size": batch_size}
    identity = {"kind": "preferences", "params": settings, "setup": setup.identity, "seed": seed}
    run = work / fingerprint(identity)
    questions = shuffle_questions(setup.questions, seed)
    remaining = questions[params.pool + params.validation :]
    part = remaining[:target] if target else remaining
    held_out = {question.id for question in part if is_held_out(question, params.held_out, seed)}
    if remaining:
        check_questions(params, part, held_out)
    prompts = run / "prompts.json"
    if not prompts.exists():
        generators = sample(params.bootstrap_temperature), sample(params.temperature)
        prompt_sets = find_prompts(params, program, questions, setup.retriever, generators, seed, run / "prompts")
        write_json(prompts, prompt_sets)
    rows = list(try_all(params, part, setup, sample, run, log, seed, batch_size=batch_size))
    manifest = {"index": setup.index, "settings": settings, "seed": seed, "hops": program.hops}
    return _write(params, manifest, part, held_out, rows, run, out)


def sample_again(
    first: Path, setup: Setup, sample: Sample, out: Path, work: Path, log: Log, seed: int
) -> dict[str, float]:
    """Sample the questions of the preferences in ``first`` again, with the same prompts, settings and split.

    ``setup.questions`` are those to learn from; the held-out ones are added and stay held out.

    Returns:
        As :func:`sample_preferences`, which also describes the files.

    Raises:
        CorpusError: ``first`` lacks a file. NoPreference: there is nothing to learn. ServiceUnavailable: the retriever
            cannot be reached; finished batches are in ``work``.
    """
    check_repeatable(first)
    manifest = read_json(first / "manifest.json")
    settings = manifest["settings"] | {"target": 0}
    params = PreferencesParams(**{name: settings[name] for name in PreferencesParams.model_fields if name in settings})
    data = {name: sha256(first / name) for name in REPEATED}
    identity = {"kind": "again", "params": settings, "setup": setup.identity, "data": data, "seed": seed}
    run = work / fingerprint(identity)
    write_json(run / "prompts.json", read_json(first / "prompts.json"))
    held_out = read_questions(first / "held_out.jsonl")
    questions = shuffle_questions([*setup.questions, *held_out], seed)
    rows = list(try_all(params, questions, setup, sample, run, log, seed, batch_size=settings["batch_size"]))
    return _write(params, manifest | {"settings": settings}, questions, {q.id for q in held_out}, rows, run, out)


def check_repeatable(folder: Path) -> None:
    """Check that the preferences in ``folder`` can be sampled again.

    Raises:
        CorpusError: a file is missing.
    """
    for name in REPEATED:
        if not (folder / name).exists():
            raise CorpusError(
                f"{folder / name} is missing; train.iterations above 1 samples again by it; run `dvc repro -f -s "
                "filter`"
            )


def shuffle_questions(questions: Sequence[Question], seed: int) -> list[Question]:
    """Return the questions with gold, in seeded order."""
    order = np.random.default_rng(seed).permutation(len(questions))
    return [questions[place] for place in order if questions[place].gold_ids]


def is_held_out(question: Question, share: float, seed: int) -> bool:
    """Return whether a question's preferences are predicted, not learnt; decided by text, so no text is on both sides.

    >>> [is_held_out(Question("q", text), 0.5, seed=0) for text in ("Who?", "Where?", "When?")]
    [True, False, False]
    """
    return random.Random(f"{seed}/held out/{question.text}").random() < share


def try_all(
    params: PreferencesParams,
    questions: Sequence[Question],
    setup: Setup,
    sample: Sample,
    run: Path,
    log: Log,
    seed: int,
    *,
    batch_size: int,
) -> Iterator[Row]:
    """Yield the rows of every hop of every question for the prompts in ``run``; batches on disk are reused."""
    assert isinstance(setup.pipeline, LeReT)
    prompt_sets = select_prompts(read_json(run / "prompts.json"))
    programs = [replace(setup.pipeline, demonstrations=examples) for examples in prompt_sets]
    rows: dict[str, Row] = {}
    step, generator = 0, None
    with bar(total=len(questions) * programs[0].hops, desc="preferences", unit="question") as progress:
        for hop in range(programs[0].hops):
            contexts = [(question, _context(rows.get(question.id), hop, seed)) for question in questions]
            open_ = [(question, context) for question, context in contexts if context is not None]
            rows = {}
            for first in stoppable(range(0, len(open_), batch_size)):
                shard = run / f"hop-{hop}-batch-{first // batch_size:05d}.json"
                if not shard.exists():
                    generator = generator or sample(params.temperature)
                    batch = open_[first : first + batch_size]
                    write_json(shard, try_batch(params, programs, batch, hop, setup, generator))
                hop_rows = read_json(shard)
                rows |= {row["question_id"]: row for row in hop_rows}
                progress.update(len(hop_rows))
                best = statistics.fmean(max(attempt["ap"] for attempt in row["tries"]) for row in hop_rows)
                log(step, {"hop": float(hop + 1), "tried": float(len(rows)), "ap": best})
                step += 1
                yield from hop_rows


def try_batch(
    params: PreferencesParams,
    programs: Sequence[LeReT],
    batch: Sequence[tuple[Question, Sequence[Retrieval]]],
    hop: int,
    setup: Setup,
    generator: Generator,
) -> list[Row]:
    """Play one hop of a batch of questions, each with every prompt, all together; return their rows."""
    contexts = [programs[0].rank(retrievals) for _, retrievals in batch]
    games = [program.one_hop(context) for context in contexts for program in programs]
    turns = iter(games)
    repeated = [question for question, _ in batch for _ in programs]
    episodes = iter(play(repeated, lambda question: next(turns)(question), setup.retriever, generator))
    rows = []
    for (question, retrievals), context in zip(batch, contexts, strict=True):
        tries = []
        for _ in programs:
            episode = next(episodes)
            retrieval = next(by_hop(episode))
            after = programs[0].rank([*retrievals, retrieval])
            gold, documents = question.gold_documents, documents_of(after)
            tries.append(
                {
                    "query": episode.outcome.hops[0].query,
                    "ap": average_precision(documents, gold),
                    "recall": len({*documents} & {*gold}) / len(gold),
                    **_pack_retrieval(retrieval),
                }
            )
        prompt = programs[0].prompt(question, context)[0]
        past = [_pack_retrieval(retrieval) for retrieval in retrievals]
        rows.append({"question_id": question.id, "hop": hop, "prompt": prompt, "found": past, "tries": tries})
    return rows


def check_index(folder: Path, identity: str) -> None:
    """Check that the preferences in ``folder`` were sampled with the index ``identity``.

    Raises:
        IndexMismatch: they were not, so queries would have other scores now.
    """
    path = folder / "manifest.json"
    sampled_with = str(read_json(path)["index"]) if path.exists() else identity
    if sampled_with != identity:
        raise IndexMismatch(
            f"{folder} was sampled with index {sampled_with}, but this one is {identity}; run `dvc repro -f -s filter` "
            "to sample again, or put the index back"
        )


def read_preferences(folder: Path) -> list[Row]:
    """Return the rows of ``preferences.jsonl``.

    Raises:
        CorpusError: there are none.
    """
    path = folder / "preferences.jsonl"
    if not path.exists():
        raise CorpusError(f"{path} is missing; run `dvc repro filter` with train.method: leret")
    return read_jsonl(path)


def _context(row: Row | None, hop: int, seed: int) -> list[Retrieval] | None:
    """Return the retrievals of earlier hops; None if the question is solved."""
    if hop == 0:
        return []
    if row is None:
        return None
    rng = random.Random(f"{seed}/{row['question_id']}/{hop}")
    place = next_try([attempt["ap"] for attempt in row["tries"]], rng)
    return None if place is None else list(map(_unpack_retrieval, (*row["found"], row["tries"][place])))


def _pack_retrieval(retrieval: Retrieval) -> Row:
    return {"passages": [asdict(passage) for passage in retrieval.passages], "scores": list(retrieval.scores)}


def _unpack_retrieval(row: Mapping[str, Any]) -> Retrieval:
    return Retrieval(tuple(Passage(**passage) for passage in row["passages"]), scores=tuple(row["scores"]))


def _write(
    params: PreferencesParams,
    manifest: Row,
    questions: Sequence[Question],
    held_out: set[str],
    hop_rows: Sequence[Row],
    run: Path,
    out: Path,
) -> dict[str, float]:
    rows = [row for hop_row in hop_rows if (row := preference_row(hop_row, hop_row["question_id"] in held_out))]
    learnt = {row["question_id"] for row in rows} - held_out
    if not learnt:
        raise NoPreference(f"no preference was found: {explain_none(hop_rows, held_out, len(rows))}")
    levels: dict[str, list[float]] = {question.id: [] for question in questions}
    for row in hop_rows:
        levels[row["question_id"]] += [hop_row["ap"] for hop_row in row["tries"]]
    notes = [statistics_row(name, values, held_out, learnt) for name, values in levels.items()]
    with draft(run / "filtered", out) as folder:
        for name, ids in {"questions": learnt, "held_out": held_out}.items():
            write_questions((question for question in questions if question.id in ids), folder / f"{name}.jsonl")
        for name, lines in {"preferences": rows, "statistics": notes}.items():
            write_text(folder / f"{name}.jsonl", "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
        shutil.copy(run / "prompts.json", folder / "prompts.json")
        write_json(folder / "manifest.json", manifest)
        summary = figures(rows, notes, hop_rows, read_json(run / "prompts.json"))
        write_json(folder / "figures.json", summary)
        note_published(run)
    return summary


def check_questions(params: PreferencesParams, questions: Sequence[Question], held_out: set[str]) -> None:
    """Check that there is a question to learn from, before sampling.

    Raises:
        CorpusError: all questions are held out.
    """
    if all(question.id in held_out for question in questions):
        raise CorpusError(
            f"all {len(questions)} questions to try are held out; lower filter.preferences.held_out "
            f"({params.held_out:g}), or try more questions"
        )


def figures(rows: Sequence[Row], notes: Sequence[Row], tried: Sequence[Row], prompts: Row) -> dict[str, float]:
    """Return the figures of a sampling."""
    chosen_aps = [row["ap"] for row in prompts["sets"] if row["chosen"]]
    pairs = Counter(row["split"] for row in rows for _ in row["pairs"])
    by_prompt = [[row["tries"][place]["ap"] for row in tried] for place in range(len(tried[0]["tries"]))]
    return {
        "tried": float(len(notes)),
        "kept": float(sum(note["kept"] for note in notes)),
        "kept_share": sum(note["kept"] for note in notes) / len(notes),
        "prompts": float(len(chosen_aps) + 1),
        "demonstrations": float(prompts["accepted"]),
        "zero_shot_ap": prompts["zero_shot"],
        "few_shot_ap": max(chosen_aps),
        "situations": float(len(tried)),
        "situations_that_teach": float(len(rows)),
        "pairs": float(pairs["train"]),
        "pairs_held_out": float(pairs["held_out"]),
        **{f"ap_prompt_{place}": statistics.fmean(values) for place, values in enumerate(by_prompt)},
        "queries": float(len({attempt["query"] for row in tried for attempt in row["tries"]})),
    }
