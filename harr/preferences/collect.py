"""Try queries hop by hop and keep which were better: the preferences that LeReT learns (arXiv 2410.23214, section 3).

Every question is asked with every prompt; the average precision of what a query led to says how good it was. One of
the outcomes is the context of the next hop. Questions are split into those that are learnt and those that are held
out before anything is sampled. What is tried depends on (seed, question, hop) alone, so that a sampling that was
killed, or made in parts, ends with the same bytes.
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
from harr.io.files import draft, note_published, read_json, read_jsonl, sha256, write_json, write_text
from harr.io.progress import bar, stoppable
from harr.io.resume import open_work
from harr.params.filter import FilterParams, PreferencesParams
from harr.preferences.few_shot import chosen_prompts, find_prompts
from harr.preferences.pairs import documents_of, next_try, preference_row, score_of, statistics_row, why_none
from harr.rag.pipelines.leret import LeReT, by_hop
from harr.rag.rollout import play
from harr.rag.scoring.ranking import average_precision
from harr.rag.setup import Setup
from harr.types import Generator, Log, Passage, Question, Retrieval

Row = dict[str, Any]
Sample = Callable[[float], Generator]
"""The language model as it is sampled at a temperature."""
REPEATED = ("manifest.json", "prompts.json", "held_out.jsonl")
"""What another sampling of the same questions goes by."""


def collect_preferences(
    params: FilterParams, setup: Setup, out: Path, work: Path, log: Log, seed: int
) -> dict[str, float]:
    """Try queries as stage filter is told; :func:`sample_preferences` says what is written, returned and raised."""
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
    """Try the queries of at most ``target`` questions (0: all), and write what is preferred to the folder ``out``.

    ``prompts.json``: what the model was shown. ``preferences.jsonl``: a row per prompt that teaches, ``{id,
    question_id, hop, split, prompt, responses, scores, pairs, sft_target}``. ``questions.jsonl``: those that are learnt
    from. ``held_out.jsonl``: those that never are. ``statistics.jsonl``: all that were tried. ``manifest.json``:
    settings, seed, and the identity of the index. ``figures.json``: what is returned. Folders of several partitions are
    joined by :func:`harr.preferences.join.join_parts`.

    Returns:
        Counts of questions, prompts and pairs, and the share of prompts that teach.

    Raises:
        CorpusError: there are too few questions, or no demonstrations. NoPreference: there is nothing to learn.
        ServiceUnavailable: the retriever cannot be reached; what was tried so far is kept in ``work``.
    """
    program = setup.pipeline
    assert isinstance(program, LeReT)
    settings = params.model_dump(exclude={"server"}) | {"target": target, "batch_size": batch_size}
    identity = {"kind": "preferences", "params": settings, "setup": setup.identity, "seed": seed}
    run = open_work(work, identity, setup=setup.readable_identity)
    questions = shuffled(setup.questions, seed)
    left = questions[params.pool + params.validation :]
    asked = part_of(left, params, target)
    held = {question.id for question in asked if is_held_out(question, params.held_out, seed)}
    if left:
        check_asked(params, asked, held)
    prompts = run / "prompts.json"
    if not prompts.exists():
        writers = sample(params.bootstrap_temperature), sample(params.temperature)
        found = find_prompts(params, program, questions, setup.retriever, writers, seed, run / "prompts")
        write_json(prompts, found)
    tried = list(try_all(params, asked, setup, sample, run, log, seed, batch_size=batch_size))
    manifest = {"index": setup.index, "settings": settings, "seed": seed, "hops": program.hops}
    return _write(params, manifest, asked, held, tried, run, out)


def sample_again(
    first: Path, setup: Setup, sample: Sample, out: Path, work: Path, log: Log, seed: int
) -> dict[str, float]:
    """Try the questions of the preferences in ``first`` anew, by the same prompts, settings and split.

    ``setup.questions`` are those that were learnt from; those held out are added, and stay held out.

    Returns:
        As :func:`sample_preferences`, which also says what is written.

    Raises:
        CorpusError: ``first`` lacks a file. NoPreference: there is nothing to learn. ServiceUnavailable: the retriever
            cannot be reached; what was tried so far is kept in ``work``.
    """
    check_repeatable(first)
    manifest = read_json(first / "manifest.json")
    settings = manifest["settings"] | {"num_partitions": 1, "partition": 0, "target": 0}
    params = PreferencesParams(**{name: settings[name] for name in PreferencesParams.model_fields if name in settings})
    data = {name: sha256(first / name) for name in REPEATED}
    identity = {"kind": "again", "params": settings, "setup": setup.identity, "data": data, "seed": seed}
    run = open_work(work, identity, setup=setup.readable_identity)
    write_json(run / "prompts.json", read_json(first / "prompts.json"))
    held = read_questions(first / "held_out.jsonl")
    asked = shuffled([*setup.questions, *held], seed)
    tried = list(try_all(params, asked, setup, sample, run, log, seed, batch_size=settings["batch_size"]))
    return _write(params, manifest | {"settings": settings}, asked, {one.id for one in held}, tried, run, out)


def check_repeatable(folder: Path) -> None:
    """See that the preferences in ``folder`` can be sampled again.

    Raises:
        CorpusError: a file that this needs is missing.
    """
    for name in REPEATED:
        if not (folder / name).exists():
            raise CorpusError(
                f"{folder / name} is missing; train.iterations above 1 samples again by it; run `dvc repro -f -s "
                "filter`"
            )


def shuffled(questions: Sequence[Question], seed: int) -> list[Question]:
    """Return the questions that have gold, in seeded order."""
    order = np.random.default_rng(seed).permutation(len(questions))
    return [questions[place] for place in order if questions[place].gold_ids]


def part_of(questions: Sequence[Question], params: PreferencesParams, target: int) -> list[Question]:
    """Return the questions of this partition: equal parts in a row; of these at most ``target`` (0: all)."""
    ends = [len(questions) * number // params.num_partitions for number in range(params.num_partitions + 1)]
    part = list(questions[ends[params.partition] : ends[params.partition + 1]])
    return part[:target] if target else part


def is_held_out(question: Question, share: float, seed: int) -> bool:
    """Return whether a question's preferences are predicted, not learnt: by its text, so that no text is on both sides.

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
    """Yield what every hop of every question led to with the prompts in ``run``; what is on disk is not played."""
    assert isinstance(setup.pipeline, LeReT)
    shown = chosen_prompts(read_json(run / "prompts.json"))
    programs = [replace(setup.pipeline, demonstrations=examples) for examples in shown]
    rows: dict[str, Row] = {}
    step, writer = 0, None
    with bar(total=len(questions) * programs[0].hops, desc="preferences", unit="question") as progress:
        for hop in range(programs[0].hops):
            contexts = [(question, _context(rows.get(question.id), hop, seed)) for question in questions]
            open_ = [(question, found) for question, found in contexts if found is not None]
            rows = {}
            for first in stoppable(range(0, len(open_), batch_size)):
                shard = run / f"hop-{hop}-batch-{first // batch_size:05d}.json"
                if not shard.exists():
                    writer = writer or sample(params.temperature)
                    batch = open_[first : first + batch_size]
                    write_json(shard, try_batch(params, programs, batch, hop, setup, writer))
                played = read_json(shard)
                rows |= {row["question_id"]: row for row in played}
                progress.update(len(played))
                best = statistics.fmean(max(tried["ap"] for tried in row["tries"]) for row in played)
                log(step, {"hop": float(hop + 1), "tried": float(len(rows)), "ap": best})
                step += 1
                yield from played


def try_batch(
    params: PreferencesParams,
    programs: Sequence[LeReT],
    batch: Sequence[tuple[Question, Sequence[Retrieval]]],
    hop: int,
    setup: Setup,
    writer: Generator,
) -> list[Row]:
    """Return one hop of a batch of questions, each with every prompt: all are played together."""
    ranked = [programs[0].ranked(found) for _, found in batch]
    games = [program.one_hop(context) for context in ranked for program in programs]
    turns = iter(games)
    asked = [question for question, _ in batch for _ in programs]
    episodes = iter(play(asked, lambda question: next(turns)(question), setup.retriever, writer))
    rows = []
    for (question, found), context in zip(batch, ranked, strict=True):
        tries = []
        for _ in programs:
            episode = next(episodes)
            retrieval = next(by_hop(episode))
            after = programs[0].ranked([*found, retrieval])
            gold, got = question.gold_documents, documents_of(after)
            tries.append(
                {
                    "query": episode.outcome.hops[0].query,
                    "ap": average_precision(got, gold),
                    "recall": len({*got} & {*gold}) / len(gold),
                    "score": score_of(params.gain, gold, context, retrieval.passages, after),
                    **_packed(retrieval),
                }
            )
        prompt = programs[0].prompt(question, context)[0]
        past = [_packed(retrieval) for retrieval in found]
        rows.append({"question_id": question.id, "hop": hop, "prompt": prompt, "found": past, "tries": tries})
    return rows


def check_index(folder: Path, identity: str) -> None:
    """Compare the index that preferences were sampled with and the one that is here.

    Raises:
        IndexMismatch: they differ, so that a query is worth something else now.
    """
    path = folder / "manifest.json"
    known = str(read_json(path)["index"]) if path.exists() else identity
    if known != identity:
        raise IndexMismatch(
            f"{folder} was sampled with index {known}, but this one is {identity}; run `dvc repro -f -s filter` "
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
    """Return what the hops before have found; None where the question is solved, or was before."""
    if hop == 0:
        return []
    if row is None:
        return None
    rng = random.Random(f"{seed}/{row['question_id']}/{hop}")
    place = next_try([tried["ap"] for tried in row["tries"]], rng)
    return None if place is None else [_unpacked(found) for found in (*row["found"], row["tries"][place])]


def _packed(retrieval: Retrieval) -> Row:
    return {"passages": [asdict(passage) for passage in retrieval.passages], "scores": list(retrieval.scores)}


def _unpacked(row: Mapping[str, Any]) -> Retrieval:
    return Retrieval(tuple(Passage(**passage) for passage in row["passages"]), scores=tuple(row["scores"]))


def _write(
    params: PreferencesParams,
    manifest: Row,
    questions: Sequence[Question],
    held: set[str],
    tried: Sequence[Row],
    run: Path,
    out: Path,
) -> dict[str, float]:
    rows = [row for made in tried if (row := preference_row(params, made, made["question_id"] in held))]
    learnt = {row["question_id"] for row in rows} - held
    if not learnt:
        raise NoPreference(f"no preference was found: {why_none(params, tried, held, len(rows))}")
    levels: dict[str, list[float]] = {question.id: [] for question in questions}
    for row in tried:
        levels[row["question_id"]] += [made["ap"] for made in row["tries"]]
    notes = [statistics_row(name, values, held, learnt) for name, values in levels.items()]
    with draft(run / "filtered", out) as folder:
        for name, ids in {"questions": learnt, "held_out": held}.items():
            write_questions((question for question in questions if question.id in ids), folder / f"{name}.jsonl")
        for name, lines in {"preferences": rows, "statistics": notes}.items():
            write_text(folder / f"{name}.jsonl", "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
        shutil.copy(run / "prompts.json", folder / "prompts.json")
        write_json(folder / "manifest.json", manifest)
        found = figures(rows, notes, tried, read_json(run / "prompts.json"))
        write_json(folder / "figures.json", found)
        note_published(run)
    return found


def check_asked(params: PreferencesParams, questions: Sequence[Question], held: set[str]) -> None:
    """See that there is a question to learn from, before any is tried.

    Raises:
        CorpusError: there is none in this part, or all are held out.
    """
    if not questions:
        raise CorpusError(
            f"partition {params.partition} of {params.num_partitions} has no question to try; lower filter.preferences."
            "num_partitions, or download more questions"
        )
    if all(question.id in held for question in questions):
        raise CorpusError(
            f"all {len(questions)} questions to try are held out; lower filter.preferences.held_out "
            f"({params.held_out:g}), or try more questions"
        )


def figures(rows: Sequence[Row], notes: Sequence[Row], tried: Sequence[Row], prompts: Row) -> dict[str, float]:
    """Return a sampling in a few numbers."""
    chosen = [row["ap"] for row in prompts["sets"] if row["chosen"]]
    pairs = Counter(row["split"] for row in rows for _ in row["pairs"])
    by_prompt = [[row["tries"][place]["ap"] for row in tried] for place in range(len(tried[0]["tries"]))]
    return {
        "tried": float(len(notes)),
        "kept": float(sum(note["kept"] for note in notes)),
        "kept_share": sum(note["kept"] for note in notes) / len(notes),
        "prompts": float(len(chosen) + 1),
        "demonstrations": float(prompts["accepted"]),
        "zero_shot_ap": prompts["zero_shot"],
        "few_shot_ap": max(chosen),
        "situations": float(len(tried)),
        "situations_that_teach": float(len(rows)),
        "pairs": float(pairs["train"]),
        "pairs_held_out": float(pairs["held_out"]),
        **{f"ap_prompt_{place}": statistics.fmean(values) for place, values in enumerate(by_prompt)},
        "queries": float(len({made["query"] for row in tried for made in row["tries"]})),
    }
