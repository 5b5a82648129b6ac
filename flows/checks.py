"""Whether questions, gold passages and reward fit each other, told before anything is embedded: `harr preview`."""

from collections.abc import Mapping, Sequence

from flows.doctor.finding import Finding, fail, ok, warn
from harr.datasets.preview import Data
from harr.params.pipeline import PipelineFacts
from harr.params.reward import OF_ANSWERS, OF_GOLD
from harr.rag.scoring.text import statable_answers, states_answer
from harr.types import Question

MANY = 0.1
"""Share of the questions from which on a flaw of theirs is worth a warning."""


def checks(data: Data, terms: Sequence[str], pipeline: PipelineFacts, min_questions: int) -> list[Finding]:
    """Return what is right and wrong with a data set that is to be trained on with a reward of these ``terms``."""
    splits = {"train": data.splits.train, "validation": data.splits.validation, "test": data.splits.test}
    found = [*_documents(data), *_gold(data, splits)]
    for split in ("train", "test"):
        if not splits[split]:
            found.append(fail("questions", f"no {split} questions", f"check download.{split}"))
    for term in terms:
        found += _reward(term, splits, pipeline)
    found += _answers(data, splits)
    found += _picks(splits, terms, getattr(pipeline, "picks", 0))
    tests = len(splits["test"])
    if tests < min_questions:
        fix = "take more test questions, or lower tracking.min_questions"
        found.append(warn("promotion", f"{tests} test questions, at least {min_questions} are wanted", fix))
    return found


def _documents(data: Data) -> list[Finding]:
    """Tell what was left out when passages and questions were read."""
    found = []
    if data.left_out:
        what = f"{len(data.left_out):,} cannot be read; first {data.left_out[0]}"
        found.append(warn("documents", what, "mend them, or remove them from the folder"))
    gone = {name: int(count) for name, count in data.figures.items() if name.endswith("_without_their_passages")}
    for name, count in gone.items():
        split = name.partition("_")[0]
        fix = f"name other passages in `supporting` in download.{split}, or remove them"
        found.append(warn("gold", f"{count} {split} questions whose passages were changed or removed", fix))
    return found


def _gold(data: Data, splits: Mapping[str, Sequence[Question]]) -> list[Finding]:
    """Tell whether the passages are there that questions name."""
    if data.ids is None:
        return []
    found = []
    for key, field in (("gold_ids", "supporting"), ("candidate_ids", "context_ids")):
        named = [(split, q.id, pid) for split, asked in splits.items() for q in asked for pid in getattr(q, key)]
        missing = [one for one in named if one[2] not in data.ids]
        if missing:
            split, question, pid = missing[0]
            what = f"{len(missing):,} of {len(named):,} are no passage; first {pid!r} of {split} question {question!r}"
            found.append(fail(field, what, f"mend {field}, add the passages, or remove the questions"))
        elif named:
            found.append(ok(field, f"all {len(named):,} are passages of {len(data.ids):,}"))
    return found


def _reward(term: str, splits: Mapping[str, Sequence[Question]], pipeline: PipelineFacts) -> list[Finding]:
    """Tell whether a term of the reward can score the questions."""
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
    found = []
    for split, asked in splits.items():
        lacking = [question for question in asked if not getattr(question, needs)]
        if lacking:
            told = f"{len(lacking):,} of {len(asked):,} {split} questions have no {what}; first {lacking[0].id!r}"
            report = fail if len(lacking) == len(asked) else warn
            other = "answer_f1" if needs == "gold_ids" else "recall"
            fix = f"add them, or set reward.terms to what the questions have, such as {other}"
            found.append(report(subject, told, fix))
    return found or [ok(subject, f"all questions have {what}")]


def _stated(answers: Sequence[str], texts: Sequence[str]) -> bool:
    """Return whether texts state an answer, of which each part (Bath; Leeds) may stand in a text of its own.

    >>> _stated(["Bath; Leeds"], ["Born in Bath.", "Died in Leeds."]), _stated(["Bath; Leeds"], ["Born in Bath."])
    (True, False)
    """
    return any(
        all(any(states_answer(text, [part]) for text in texts) for part in answer.split(";")) for answer in answers
    )


def _answers(data: Data, splits: Mapping[str, Sequence[Question]]) -> list[Finding]:
    """Tell how many answers stand in their gold passages, and how many in the question; yes and no stand nowhere."""
    asked = [question for questions in splits.values() for question in questions if statable_answers(question.answers)]
    leaking = [question for question in asked if states_answer(question.text, question.answers)]
    found = []
    if leaking:
        what = f"of {len(leaking):,} of {len(asked):,} questions stand in the question; first {leaking[0].id!r}"
        found.append(_flaw("answers", what, len(leaking), len(asked), "ask otherwise, or remove the questions"))
    read = [q for q in asked if q.gold_ids and data.contents.keys() >= {*q.gold_ids}]
    lacking = [q for q in read if not _stated(q.answers, [data.contents[pid] for pid in q.gold_ids])]
    if lacking:
        what = f"of {len(lacking):,} of {len(read):,} questions stand in none of their gold passages; first "
        fix = "mend answers or supporting; an answer should be worded as its passage words it"
        found.append(_flaw("answers", f"{what}{lacking[0].id!r}", len(lacking), len(read), fix))
    elif read:
        found.append(ok("answers", f"of all {len(read):,} questions stand in their gold passages"))
    return found


def _flaw(subject: str, found: str, count: int, total: int, fix: str) -> Finding:
    return warn(subject, found, fix) if count > MANY * total else ok(subject, found)


def _picks(splits: Mapping[str, Sequence[Question]], terms: Sequence[str], picks: int) -> list[Finding]:
    """Tell whether a pipeline that picks can find all gold."""
    over = [q for asked in splits.values() for q in asked if picks and len(q.gold_documents) > picks]
    if not over or not {"recall", "all_gold"} & {*terms}:
        return []
    most = max(len(question.gold_documents) for question in over)
    found = f"{picks} are made, and {len(over):,} questions have up to {most} gold passages"
    return [warn("picks", found, f"set pipeline.picks: {most}, or their reward stays below 1")]
