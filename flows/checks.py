"""Check that questions, gold passages and reward fit together before anything is embedded: `harr preview`."""

from collections.abc import Mapping, Sequence

from flows.finding import Finding, fail, ok, warn
from harr.characters import statable_answers, states_answer
from harr.datasets.preview import Data
from harr.params.fields import is_dotted
from harr.params.functions import function_of
from harr.params.pipeline import PipelineFacts
from harr.params.reward import OF_ANSWERS, OF_GOLD, TERM_SHAPE
from harr.types import Question

MANY = 0.1
"""Share of questions with a flaw from which it is worth a warning."""


def checks(data: Data, terms: Sequence[str], pipeline: PipelineFacts, min_questions: int) -> list[Finding]:
    """Return what is right and wrong with a data set for training with a reward of these ``terms``.

    Raises:
        ParamsError: a term of another package cannot be imported, or takes other arguments.
    """
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
    """Report passages and questions that were left out on reading."""
    findings = []
    if data.left_out:
        what = f"{len(data.left_out):,} cannot be read; first {data.left_out[0]}"
        findings.append(warn("documents", what, "mend them, or remove them from the folder"))
    for split, ids in data.gone.items():
        what = f"{len(ids):,} {split} questions are left out, a gold passage is not in the corpus; first {ids[0]!r}"
        findings.append(warn("gold", what, f"name other passages in `supporting` in download.{split}, or remove them"))
    return findings


def _gold(data: Data, splits: Mapping[str, Sequence[Question]]) -> list[Finding]:
    """Check that the passages that questions name exist."""
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
    if is_dotted(term):
        function_of(term, key="reward.terms", shape=TERM_SHAPE)
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
    """Return whether texts state an answer; each part of it (Bath; Leeds) may be in a text of its own.

    >>> _have_answer(["Bath; Leeds"], ["Born in Bath.", "Died in Leeds."]), _have_answer(["Bath; Leeds"], ["Born in Bath."])
    (True, False)
    """
    return any(
        all(any(states_answer(text, [part]) for text in texts) for part in answer.split(";")) for answer in answers
    )


def _answers(data: Data, splits: Mapping[str, Sequence[Question]]) -> list[Finding]:
    """Count the answers in their gold passages, and those in the question; yes and no do not count."""
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
