"""Answers out of logs: what a language model is asked for each task, and what counts of its reply."""

import re
from collections.abc import Sequence

import pytest
from harr_lengths.answers import exam_of, exam_of_task, judge_reply, read_answers
from harr_lengths.babi import make_stories

from harr.params.download import FunctionDatasetParams
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
    for task in (1, 2, 3, 4, 5):
        answered = read_answers([ROW], reader := Echo("Context:"), exam_of_task(task))[0]
        assert "Context: to office. to Bath.\n\nQuestion: Where?" in reader.asked[0] and "$" not in reader.asked[0]
        assert set(answered) == {*ROW, "answer", "answer_em", "answer_f1"}


@pytest.mark.parametrize("task", [1, 2, 3, 4, 5])
def test_an_answer_in_the_form_of_the_examples_is_right(task: int) -> None:
    settings = {"task": task, "noise": "repeated"}
    function = "harr_lengths.babilong:DATASET"
    exam = exam_of(FunctionDatasetParams(dataset="function", function=function, settings=settings))
    assert exam
    forms = re.findall(r"^Answer: (.+)$", exam.prompt, re.MULTILINE)
    assert forms
    for story in make_stories(task, 20, seed=0):
        for form in forms:
            start = form.rstrip(".").rpartition(" ")[0]
            assert judge_reply(f"<think>No.</think>{start} {story.answers[0]}.", story.answers, exam)["answer_em"] == 1
            wrong = {"answer": "nowhere", "answer_em": 0.0, "answer_f1": 0.0}
            assert judge_reply(f"{start} nowhere.", story.answers, exam) == wrong


def test_the_names_in_a_reply_count_for_f1() -> None:
    assert judge_reply("garden or office", ["office"], exam_of_task(1))["answer_f1"] == pytest.approx(2 / 3)
    assert judge_reply("bill", ["Bill"], exam_of_task(5)) == {"answer": "bill", "answer_em": 1.0, "answer_f1": 1.0}
    assert judge_reply("", ["office"], exam_of_task(1)) == {"answer": "", "answer_em": 0.0, "answer_f1": 0.0}
