"""What a language model reads out of the picks of a log, asked and judged as BABILong's authors do for each task.

The prompts say what the published ones say, in words of ours (arXiv 2406.10149): the rule of the task, examples, and
the form of an answer. As there a story of bAbI is answered by the last word, and its F1 counts the names of places,
people and things in the whole reply. Of needles (RULER) all values of a reply count.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from harr.datasets.babi_rules import GIVERS, PLACES, THINGS
from harr.params.download import BabiLongParams, DatasetParams, RulerParams
from harr.rag.pipelines.replies import line, passages_text, prompt, short_answer, without_thoughts
from harr.rag.pipelines.tags import escape
from harr.rag.scoring.text import exact_match, token_f1
from harr.types import Generate, Generator, Passage, Question

NAMES = {"qa5": (*GIVERS, *THINGS)} | {f"qa{task}": PLACES for task in (1, 2, 3, 4)}
"""What the answer of each task of bAbI is one of."""
_VALUE = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|\b\d{7}\b")


def task_of(data: DatasetParams) -> str:
    """Return the task whose prompt is asked: qa1 to qa5, needles, or "" where questions are of no such task."""
    if isinstance(data, BabiLongParams):
        return f"qa{data.task}"
    return "needles" if isinstance(data, RulerParams) else ""


def read_answers(rows: Sequence[Mapping[str, Any]], generator: Generator, task: str = "") -> list[dict[str, Any]]:
    """Return the lines of a log with the answer that a language model reads out of the picks, its EM and its F1."""
    replies = generator.complete([_request(row, task) for row in rows])
    return [{**row, **judged(reply, row["answers"], task)} for row, reply in zip(rows, replies, strict=True)]


def _request(row: Mapping[str, Any], task: str) -> Generate:
    told = [text for _, text in sorted(zip(row["picked"], row["texts"], strict=True))]
    question = Question(row["id"], row["question"])
    if task:
        return prompt(f"pick_{task}", question, (), passages=escape(" ".join(map(line, told)))[0])
    shown, _ = passages_text([Passage(str(place), text) for place, text in enumerate(told)])
    return prompt("pick", question, (), passages=shown)


def judged(reply: str, answers: Sequence[str], task: str = "") -> dict[str, Any]:
    """Return the answer of a reply, its EM and its F1, by the rules of the task.

    >>> judged("Before the office the milk was in the garden.", ["garden"], "qa3")
    {'answer': 'garden', 'answer_em': 1.0, 'answer_f1': 0.6666666666666666}
    >>> judged("The values are 1234567, 7654321.", ["7654321, 1234567"], "needles")
    {'answer': '1234567, 7654321', 'answer_em': 1.0, 'answer_f1': 1.0}
    """
    if not task:
        answer = short_answer(reply)
        return _scores(answer, exact_match(answer, answers), token_f1(answer, answers))
    gold = answers[0]
    said = without_thoughts(reply).strip()
    if task == "needles":
        values = _VALUE.findall(said)
        found, wanted = set(values), set(_VALUE.findall(gold))
        return _scores(", ".join(values), found == wanted, _set_f1(found, wanted))
    last = (said.strip(" .").split() or [""])[-1]
    found, wanted = ({name for name in NAMES[task] if name.lower() in text.lower()} for text in (said, gold))
    return _scores(last, last.lower() == gold.lower(), _set_f1(found, wanted))


def _scores(answer: str, em: float, f1: float) -> dict[str, Any]:
    return {"answer": answer, "answer_em": float(em), "answer_f1": f1}


def _set_f1(found: set[str], wanted: set[str]) -> float:
    return 2 * len(found & wanted) / (len(found) + len(wanted)) if found or wanted else 1.0
