"""A language model's answers from the picks of a log, asked and judged for each task as by BABILong's authors.

The prompts follow the published ones in our own words (arXiv 2406.10149): the rule of the task, examples, and the form
of an answer. As there, the answer to a story of bAbI is the last word, and its F1 counts the names of places, people
and things in the whole reply. A data set of another package brings its own exam.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from harr.datasets import dataset_of
from harr.params.download import DatasetParams
from harr.rag.pipelines.replies import (
    line,
    messages,
    passages_text,
    prompt,
    short_answer,
    strip_thoughts,
)
from harr.rag.pipelines.tags import escape
from harr.rag.scoring.text import exact_match, token_f1
from harr.types import Generate, Generator, Passage, Question
from harr_lengths.babi_rules import GIVERS, PLACES, THINGS
from harr_lengths.babilong import BabiLongParams
from harr_lengths.stories import Exam, Stories

NAMES = {5: (*GIVERS, *THINGS)} | dict.fromkeys((1, 2, 3, 4), PLACES)
"""Possible answers of each task of bAbI."""


def exam_of(data: DatasetParams) -> Exam | None:
    """Return how questions of a data set are asked and judged: those of bAbI by their task; None: like any others."""
    dataset, section = dataset_of(data)
    if isinstance(section, BabiLongParams):
        return exam_of_task(section.task)
    return dataset.long_documents(section).exam if isinstance(dataset, Stories) else None


def exam_of_task(task: int) -> Exam:
    """Return the exam of a task of bAbI."""
    prompt = Path(__file__).with_name(f"pick_qa{task}.txt").read_text(encoding="utf-8")
    return Exam(prompt, partial(_judge_names, NAMES[task]))


def read_answers(
    rows: Sequence[Mapping[str, Any]], generator: Generator, exam: Exam | None = None
) -> list[dict[str, Any]]:
    """Return the lines of a log with the answer that a language model gives from the picks, its EM and its F1."""
    replies = generator.complete([_request(row, exam) for row in rows])
    return [{**row, **judge_reply(reply, row["answers"], exam)} for row, reply in zip(rows, replies, strict=True)]


def _request(row: Mapping[str, Any], exam: Exam | None) -> Generate:
    texts = [text for _, text in sorted(zip(row["picked"], row["texts"], strict=True))]
    question = Question(row["id"], row["question"])
    if exam:
        return messages(exam.prompt, question=line(question.text), passages=escape(" ".join(map(line, texts)))[0])
    passages, _ = passages_text([Passage(str(place), text) for place, text in enumerate(texts)])
    return prompt("pick", question, (), passages=passages)


def judge_reply(reply: str, answers: Sequence[str], exam: Exam | None = None) -> dict[str, Any]:
    """Return the answer in a reply, with its EM and F1, by the rules of the exam.

    >>> judge_reply("Before the office the milk was in the garden.", ["garden"], exam_of_task(3))
    {'answer': 'garden', 'answer_em': 1.0, 'answer_f1': 0.6666666666666666}
    """
    if exam:
        return exam.judge(strip_thoughts(reply).strip(), answers[0])
    answer = short_answer(reply)
    return verdict(answer, exact_match(answer, answers), token_f1(answer, answers))


def _judge_names(names: Sequence[str], reply: str, gold: str) -> dict[str, Any]:
    last = (reply.strip(" .").split() or [""])[-1]
    names_given, gold_names = ({name for name in names if name.lower() in text.lower()} for text in (reply, gold))
    return verdict(last, last.lower() == gold.lower(), set_f1(names_given, gold_names))


def verdict(answer: str, em: float, f1: float) -> dict[str, Any]:
    """Return an exam's verdict on a reply."""
    return {"answer": answer, "answer_em": float(em), "answer_f1": f1}


def set_f1(answers: set[str], gold: set[str]) -> float:
    """Return the F1 of the names in a reply against the right ones; 1 if both are empty."""
    return 2 * len(answers & gold) / (len(answers) + len(gold)) if answers or gold else 1.0
