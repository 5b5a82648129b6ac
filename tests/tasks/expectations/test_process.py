"""Great Expectations, in its own process, stops bad tables with the rule and the first offending rows."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import styled
from stages import ROOT

from harr.errors import ExpectationFailed
from tasks.evaluate import evaluation_frame
from tasks.expectations.process import checker, data_docs, expect
from tasks.filter_outputs import preferences_frame

pytestmark = pytest.mark.services

CORPUS = {"row": [0, 1, 2], "id": ["a", "b", "c"], "text": ["One.", "Two.", "Three."], "words": [1, 1, 1]}
QUESTIONS = {
    "split": ["train", "test"],
    "id": ["q1", "q2"],
    "question": ["Who?", "Where?"],
    "targets": [1, 2],
    "missing_gold": [0, 0],
    "in_other_split": [False, False],
    "gold_elsewhere": [0, 0],
}
VECTORS = {"row": [0, 1, 2], "norm": [1.0, 1.0, 1.0], "first": [0.1, 0.2, 0.3]}
INDEX = {"collection": ["harr_1"], "indexed": [9], "searchable": [9], "vectors": [10], "passages": [10]}
FILTERED = {"id": ["q1", "q2"], "reward_std": [0.5, 0.1], "reason": ["rollouts disagree"] * 2}
EVALUATION = {
    "arm": ["frozen", "trained"],
    "id": ["q1", "q1"],
    "questions_missing": [0, 0],
    "recall": [0.5, 1.0],
    "answer_f1": [None, None],
}
TABLES: dict[str, dict[str, Any]] = {
    "corpus": CORPUS,
    "questions": QUESTIONS,
    "vectors": VECTORS,
    "index": INDEX,
    "filtered": FILTERED,
    "all_kept": {"id": ["q1", "q2"], "kept": [True, True]},
    "evaluation": EVALUATION,
}


@pytest.fixture(scope="module", autouse=True)
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One folder and one Great Expectations process for the whole file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("checks"))
        patch.setenv("PYTHONPATH", str(ROOT))
        process = checker()
        yield Path.cwd()
        process.communicate(timeout=60)
    checker.cache_clear()


def test_sound_tables_pass() -> None:
    for suite, table in TABLES.items():
        assert expect(suite, pd.DataFrame(table))[f"expected_{suite}"] >= 3, suite
    row = {"id": "q1", "recall": 1.0, "answer_f1": 0.5}
    seeds = evaluation_frame({"frozen": [[row]], "trained": [[row], [row]]})
    assert expect("evaluation", seeds) == {"expected_evaluation": 4.0}, "every seed of an arm is a run of its own"


def test_preferences_hold_and_fail_where_they_should() -> None:
    styled.sampled(Path("data/filtered"))
    frame = preferences_frame()
    assert expect("preferences", frame) == {"expected_preferences": 10.0}
    for column, value in {"margin": 0.0, "in_other_split": True, "chosen": ""}.items():
        wrong: pd.DataFrame = frame.copy()
        wrong.loc[0, column] = value
        with pytest.raises(ExpectationFailed, match=column):
            expect("preferences", wrong)


@pytest.mark.fault(16)
@pytest.mark.parametrize(
    ("suite", "column", "values", "rule", "row"),
    [
        ("corpus", "id", ["a", "b", "b"], "be_unique", "first id b, row 1; id b, row 2"),
        ("corpus", "text", ["One.", "", "Three."], "value_lengths", "id b"),
        ("questions", "missing_gold", [0, 2], "missing_gold", "id q2"),
        ("questions", "in_other_split", [False, True], "in_other_split", "split test"),
        ("questions", "gold_elsewhere", [0, 1], "gold_elsewhere", "split test"),
        ("questions", "split", ["train", "train"], "split", "missing ['test']"),
        ("vectors", "norm", [1.0, 0.0, 1.0], "norm", "row 1"),
        ("vectors", "norm", [1.0, float("nan"), 1.0], "not_be_null", "row 1"),
        ("vectors", "first", [0.1, 0.1, 0.1], "stdev", "min_value 1e-06): found"),
        ("index", "indexed", [8], "pair_values_to_be_equal", "collection harr_1"),
        ("index", "vectors", [9], "pair_values_to_be_equal", "collection harr_1"),
        ("filtered", "reward_std", [0.0, 0.1], "reward_std", "id q1"),
        ("filtered", "reason", ["rollouts disagree", "all right"], "reason", "id q2"),
        ("all_kept", "kept", [True, False], "kept", "id q2"),
        ("evaluation", "recall", [0.5, 1.5], "recall", "arm trained"),
        ("evaluation", "questions_missing", [0, 3], "questions_missing", "arm trained"),
    ],
)
def test_a_bad_table_stops_with_the_rule_and_the_row(
    suite: str, column: str, values: list[object], rule: str, row: str
) -> None:
    frame = pd.DataFrame(TABLES[suite] | {column: values})
    with pytest.raises(ExpectationFailed) as error:
        expect(suite, frame)
    text = str(error.value)
    assert text.startswith(f"{suite}: 1 of ") and rule in text and row in text
    assert "\n" not in text
    page = data_docs()[suite]
    assert text.endswith(f"see {page}") and "Failed" in Path(page).read_text()
