"""Check that questions, gold passages and reward fit each other, before anything is embedded: `harr preview`."""

from collections.abc import Mapping, Sequence
from statistics import fmean

from flows.doctor.finding import Finding, fail, ok, warn
from harr.characters import statable_answers, states_answer
from harr.datasets.preview import Data
from harr.index.kinds import memory_bytes
from harr.params import Params
from harr.params.pipeline import PipelineFacts
from harr.params.reward import OF_ANSWERS, OF_GOLD
from harr.types import Question
from tasks.runtime.limits import Sizes, format_bytes, written
from tasks.runtime.memory import (
    GPU_RATE,
    WORDS,
    estimate_gpu_seconds,
    estimate_memory,
    gpu_shortage,
    shape_of,
    shape_of_agent,
)

TEXT_BYTES = 650.0
"""Bytes of a passage of a corpus that is not read beforehand: wiki18's."""
MANY = 0.1
"""Share of the questions from which on a flaw of theirs is worth a warning."""


def checks(data: Data, terms: Sequence[str], pipeline: PipelineFacts, min_questions: int) -> list[Finding]:
    """Return what is right and wrong with a data set that is to be trained on with a reward of these ``terms``."""
    splits = {"train": data.splits.train, "validation": data.splits.validation, "test": data.splits.test}
    findings = [*_documents(data), *_gold(data, splits)]
    for split in ("train", "test"):
        if not splits[split]:
            findings.append(fail("questions", f"no {split} questions", f"check download.{split}"))
    for term in terms:
        findings += _reward(term, splits, pipeline)
    findings += _answers(data, splits)
    findings += _picks(splits, terms, getattr(pipeline, "picks", 0))
    tests = len(splits["test"])
    if tests < min_questions:
        fix = "take more test questions, or lower tracking.min_questions"
        findings.append(warn("promotion", f"{tests} test questions, at least {min_questions} are wanted", fix))
    return findings


def _documents(data: Data) -> list[Finding]:
    """Report passages and questions that were left out when they were read."""
    findings = []
    if data.left_out:
        what = f"{len(data.left_out):,} cannot be read; first {data.left_out[0]}"
        findings.append(warn("documents", what, "mend them, or remove them from the folder"))
    for split, ids in data.gone.items():
        what = f"{len(ids):,} {split} questions are left out, a gold passage is not in the corpus; first {ids[0]!r}"
        findings.append(warn("gold", what, f"name other passages in `supporting` in download.{split}, or remove them"))
    return findings


def _gold(data: Data, splits: Mapping[str, Sequence[Question]]) -> list[Finding]:
    """Check that the passages exist that questions name."""
    if data.ids is None:
        return []
    findings = []
    for key, field in (("gold_ids", "supporting"), ("candidate_ids", "context_ids")):
        names = [(split, q.id, pid) for split, batch in splits.items() for q in batch for pid in getattr(q, key)]
        missing = [row for row in names if row[2] not in data.ids]
        if missing:
            split, question, pid = missing[0]
            what = f"{len(missing):,} of {len(names):,} are no passage; first {pid!r} of {split} question {question!r}"
            setting = " (download.missing_gold: drop)" if field == "supporting" else ""
            findings.append(fail(field, what, f"mend {field}, add the passages, or remove the questions{setting}"))
        elif names:
            findings.append(ok(field, f"all {len(names):,} are passages of {len(data.ids):,}"))
    return findings


def _reward(term: str, splits: Mapping[str, Sequence[Question]], pipeline: PipelineFacts) -> list[Finding]:
    """Check that a term of the reward can score the questions."""
    needs, what = (
        ("gold_ids", "gold passages (supporting)")
        if term in OF_GOLD
        else ("answers", "answers")
        if term in OF_ANSWERS
        else ("", "")
    )
    subject = f"reward {term}"
    if not needs:
        return []
    silent = not pipeline.foreign and (pipeline.read_later or not pipeline.needs_generator)
    if needs == "answers" and silent:
        fix = "set reward.terms to recall or mrr, or a pipeline that answers"
        return [fail(subject, "the pipeline writes no answers, so that it is always 0", fix)]
    findings = []
    for split, batch in splits.items():
        lacking = [question for question in batch if not getattr(question, needs)]
        if lacking:
            message = f"{len(lacking):,} of {len(batch):,} {split} questions have no {what}; first {lacking[0].id!r}"
            report = fail if len(lacking) == len(batch) else warn
            other = "answer_f1" if needs == "gold_ids" else "recall"
            fix = f"add them, or set reward.terms to what the questions have, such as {other}"
            findings.append(report(subject, message, fix))
    return findings or [ok(subject, f"all questions have {what}")]


def _have_answer(answers: Sequence[str], texts: Sequence[str]) -> bool:
    """Return whether texts state an answer, of which each part (Bath; Leeds) may stand in a text of its own.

    >>> _have_answer(["Bath; Leeds"], ["Born in Bath.", "Died in Leeds."]), _have_answer(["Bath; Leeds"], ["Born in Bath."])
    (True, False)
    """
    return any(
        all(any(states_answer(text, [part]) for text in texts) for part in answer.split(";")) for answer in answers
    )


def _answers(data: Data, splits: Mapping[str, Sequence[Question]]) -> list[Finding]:
    """Count the answers that stand in their gold passages, and those in the question; yes and no stand nowhere."""
    pool = [question for questions in splits.values() for question in questions if statable_answers(question.answers)]
    leaking = [question for question in pool if states_answer(question.text, question.answers)]
    findings = []
    if leaking:
        what = f"of {len(leaking):,} of {len(pool):,} questions stand in the question; first {leaking[0].id!r}"
        findings.append(_flaw("answers", what, len(leaking), len(pool), "ask otherwise, or remove the questions"))
    read = [q for q in pool if q.gold_ids and data.contents.keys() >= {*q.gold_ids}]
    lacking = [q for q in read if not _have_answer(q.answers, [data.contents[pid] for pid in q.gold_ids])]
    if lacking:
        what = f"of {len(lacking):,} of {len(read):,} questions stand in none of their gold passages; first "
        fix = "mend answers or supporting; an answer should be worded as its passage words it"
        findings.append(_flaw("answers", f"{what}{lacking[0].id!r}", len(lacking), len(read), fix))
    elif read:
        findings.append(ok("answers", f"of all {len(read):,} questions stand in their gold passages"))
    return findings


def _flaw(subject: str, message: str, count: int, total: int, fix: str) -> Finding:
    return warn(subject, message, fix) if count > MANY * total else ok(subject, message)


def _picks(splits: Mapping[str, Sequence[Question]], terms: Sequence[str], picks: int) -> list[Finding]:
    """Check that a pipeline that picks can find all gold."""
    over = [q for questions in splits.values() for q in questions if picks and len(q.gold_documents) > picks]
    if not over or not {"recall", "all_gold"} & {*terms}:
        return []
    most = max(len(question.gold_documents) for question in over)
    message = f"{picks} are made, and {len(over):,} questions have up to {most} gold passages"
    return [warn("picks", message, f"set pipeline.picks: {most}, or their reward stays below 1")]


def memory_check(params: Params, data: Data, passages: int, here: float) -> list[Finding]:
    """Return what the stages will hold against the bytes that are ``here``; nothing where that is unknown."""
    shape, questions = shape_of(params.encoder.model), data.splits.train
    if shape is None or not questions:
        return []
    words = _passage_words(data)
    estimate = estimate_memory(params, shape, questions, passages=passages, words=words)
    shortage = gpu_shortage(params, questions, words)
    gpu = [warn("GPU", shortage, "or run on a larger one")] if shortage else []
    message = "about " + ", ".join(f"{count / 1e9:.1f} GB to {stage}" for stage, count in estimate.items())
    message += "" if passages or params.index.uri else ", and what the index takes"
    if max(estimate.values()) <= here:
        return [ok("memory", message), *gpu]
    fix = "lower train.states_per_pass, set train.optimizer.gradient_checkpointing or index.uri, or run where there is more"
    return [warn("memory", f"{message}; {here / 1e9:.1f} GB here", fix), *gpu]


def time_check(params: Params, data: Data, passages: int, gpus: int) -> list[Finding]:
    """Return how long so many GPUs multiply; nothing without one, or where the number of passages is unknown."""
    if not gpus or not passages:
        return []
    shape = shape_of(params.encoder.model)
    if shape is None:
        return [warn("time", f"the size of {params.encoder.model} is unknown, it is not here", "fetch it from the hub")]
    agent = shape_of_agent(params)
    seconds = estimate_gpu_seconds(params, agent, shape, passages=passages, words=_passage_words(data))
    each = ", ".join(
        f"{count / gpus / 60:,.0f} minutes to {stage}" if count > 120 * gpus else f"{count / gpus:.0f} s to {stage}"
        for stage, count in seconds.items()
    )
    return [
        ok("time", f"of {gpus} GPUs at {GPU_RATE / 1e12:.0f} TFLOP/s each about {each}, without sampling and loading")
    ]


def _passage_words(data: Data) -> float:
    """Return the mean number of words of a passage."""
    return fmean(len(text.split()) for text in data.contents.values()) if data.contents else WORDS


def files_check(params: Params, data: Data, passages: int, free: float) -> list[Finding]:
    """Return what stages will write of so many passages against the bytes that are ``free``; nothing where the encoder
    or the number is unknown."""
    shape = shape_of(params.encoder.model)
    if shape is None or not passages:
        return []
    text = fmean(map(len, data.contents.values())) if data.contents else TEXT_BYTES
    size = Sizes(passages, shape.width, round(text * passages))
    counts = {"download": size.text, **written(params, size)}
    message = ", ".join(f"{format_bytes(count)} by {stage}" for stage, count in counts.items() if count)
    message = f"of {passages:,} passages about {message}, and again in DVC's cache where it copies"
    if params.index.uri:
        message += f"; {format_bytes(memory_bytes(params.index, passages, shape.width))} of memory at the Milvus server"
    if sum(counts.values()) <= free:
        return [ok("files", message)]
    return [warn("files", f"{message}; {format_bytes(free)} free here", "make room, or run where there is more")]
