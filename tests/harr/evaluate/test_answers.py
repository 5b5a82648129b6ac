"""Answers out of logs: what a language model is asked for each task, and what counts of its reply."""

import re
from collections.abc import Sequence

import pytest

from harr.datasets.babi import make_stories
from harr.datasets.needles import KINDS, make_needles
from harr.evaluate.answers import judged, read_answers, task_of
from harr.params.download import BabiLongParams, RulerParams
from harr.rag.pipelines.replies import prompt_file
from harr.types import Generate

ROW = {"id": "q", "question": "Where?", "answers": ["office"], "picked": [9, 4], "texts": ["to Bath.", "to office."]}


class Echo:
    """Replies with a line of what it is asked; notes all that it is asked."""

    def __init__(self, wanted: str) -> None:
        self.wanted = wanted
        self.asked: list[str] = []

    def complete(self, requests: Sequence[Generate]) -> list[str]:
        self.asked = [request.messages[-1]["content"] for request in requests]
        return [next(line for line in text.splitlines() if self.wanted in line) for text in self.asked]

    def usage(self) -> dict[str, float]:
        return {}


def test_a_reader_answers_from_the_picks_in_the_order_of_the_text_by_the_prompt_of_its_task() -> None:
    reader = Echo("to office.")
    answered = read_answers([{**ROW, "answers": ["to office"]}], reader)[0]
    assert (answered["answer"], answered["answer_em"], answered["answer_f1"]) == ("to office", 1.0, 1.0)
    assert reader.asked[0].index("to office.") < reader.asked[0].index("to Bath.")
    for task in ("qa1", "qa2", "qa3", "qa4", "qa5", "needles"):
        answered = read_answers([ROW], reader := Echo("Context:"), task)[0]
        assert "Context: to office. to Bath.\n\nQuestion: Where?" in reader.asked[0] and "$" not in reader.asked[0]
        assert set(answered) == {*ROW, "answer", "answer_em", "answer_f1"}


@pytest.mark.parametrize("task", [1, 2, 3, 4, 5])
def test_an_answer_in_the_form_of_the_examples_is_right(task: int) -> None:
    name = f"qa{task}"
    forms = re.findall(r"^Answer: (.+)$", prompt_file(f"pick_{name}"), re.MULTILINE)
    for story in make_stories(task, 20, seed=0):
        for form in forms:
            told = form.rstrip(".").rpartition(" ")[0]
            assert judged(f"<think>No.</think>{told} {story.answers[0]}.", story.answers, name)["answer_em"] == 1
            wrong = {"answer": "nowhere", "answer_em": 0.0, "answer_f1": 0.0}
            assert judged(f"{told} nowhere.", story.answers, name) == wrong
    assert task_of(BabiLongParams(dataset="babilong", task=task)) == name


@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("values", ["numbers", "uuids"])
def test_values_of_needles_count_in_any_order(kind: str, values: str) -> None:
    for story in make_needles(kind, 5, seed=0, values=values):
        wanted = story.answers[0].split(", ")
        assert judged(f"The values are {','.join(reversed(wanted))}.", story.answers, "needles")["answer_em"] == 1
        part = judged(f"The values are {wanted[0]}.", story.answers, "needles")
        assert (part["answer_em"], part["answer_f1"]) == (len(wanted) == 1, pytest.approx(2 / (1 + len(wanted))))
    assert task_of(RulerParams(dataset="ruler", kind=kind)) == "needles"


def test_the_names_in_a_reply_count_for_f1() -> None:
    assert judged("garden or office", ["office"], "qa1")["answer_f1"] == pytest.approx(2 / 3)
    assert judged("bill", ["Bill"], "qa5") == {"answer": "bill", "answer_em": 1.0, "answer_f1": 1.0}
    assert judged("", ["office"], "qa1") == {"answer": "", "answer_em": 0.0, "answer_f1": 0.0}
