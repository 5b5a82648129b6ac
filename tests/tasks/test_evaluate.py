"""The table of an evaluation: every seed of an arm is a run of its own."""

from tasks.checks import expect
from tasks.evaluate import evaluation_frame


def test_the_seeds_of_an_arm_pass_the_suite() -> None:
    row = {"id": "q1", "recall": 1.0, "answer_f1": 0.5}
    frame = evaluation_frame.fn({"frozen": [[row]], "full": [[row], [row]]})
    assert list(frame["arm"]) == ["frozen-0", "full-0", "full-1"]
    assert expect.fn("evaluation", frame) == {"expected_evaluation": 4.0}
