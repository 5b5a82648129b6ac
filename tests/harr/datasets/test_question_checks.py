"""Questions that cannot be scored fairly are found: empty gold, gold not given, training close to test."""

import unicodedata
from typing import Any

import pytest
from downloading import questions, run, write_rows
from hypothesis import given, settings, strategies as st

from harr.characters import normalise
from harr.datasets.question_checks import ALIKE, find_near_duplicates, says_nothing
from harr.datasets.splits import divide
from harr.errors import CorpusError
from harr.params.download import JsonlParams
from harr.rag.scoring.text import exact_match
from harr.types import Question

WORDS = st.lists(st.sampled_from("who built red bridge old town mill new gate of".split()), min_size=1, max_size=8)


@given(st.text(alphabet="aAn thE.,!?3é\u0301", max_size=8))
@settings(max_examples=100, deadline=None)
def test_an_answer_says_nothing_where_nothing_is_left_to_compare(text: str) -> None:
    assert says_nothing(text) == (normalise(text) == "")


@pytest.mark.fault(16)
@given(st.lists(WORDS, max_size=6), st.lists(WORDS, max_size=6))
@settings(max_examples=100, deadline=None)
def test_all_pairs_that_are_alike_are_found_and_no_others(ours: list[list[str]], theirs: list[list[str]]) -> None:
    train = [Question(f"a{i}", " ".join(words), ("x",)) for i, words in enumerate(ours)]
    test = [Question(f"b{i}", " ".join(words), ("x",)) for i, words in enumerate(theirs)]
    wanted = {
        one.id
        for one, mine in zip(train, ours, strict=True)
        if any(len({*mine} & {*other}) >= ALIKE * len({*mine} | {*other}) for other in theirs)
    }
    assert set(find_near_duplicates(train, test)) == wanted


def test_questions_that_share_words_alone_are_two() -> None:
    asked = "Is the old red mill of the town of Ashford made of stone?"
    for mine, theirs in ((("Bath",), ("York",)), (("yes",), ("Yes",))):
        assert find_near_duplicates([Question("a", asked, mine)], [Question("b", asked, theirs)]) == {}
    assert find_near_duplicates([Question("a", asked, gold_ids=("p",))], [Question("b", asked, ("no",), ("p",))]) == {
        "a": "b"
    }


@pytest.mark.fault(13)
def test_the_form_of_unicode_makes_neither_another_question_nor_a_wrong_answer() -> None:
    composed, parts = (unicodedata.normalize(form, "Where was Zoé born?") for form in ("NFC", "NFD"))
    assert composed != parts
    found = divide([Question("a", parts, ("x",))], None, [Question("b", composed, ("x",))], 0)
    assert found.train == [] and found.figures["train_questions_dropped_because_in_test"] == 1
    assert exact_match(unicodedata.normalize("NFD", "Zoé"), ["Zoé"]) == 1.0


def made(train: list[dict[str, Any]], **changes: Any) -> dict[str, float]:
    """Download a small corpus with these training questions and one test question; return the figures."""
    rows = {
        "passages": [{"id": "p", "text": "Acme built the red bridge."}, {"id": "q", "text": "Bob lives in Bath."}],
        "train": train,
        "test": [{"id": "t", "question": "Who built the red bridge of old Ashford town?", "answers": ["Acme"]}],
    }
    files = {name: (write_rows(f"{name}.jsonl", own),) for name, own in rows.items()}
    return run(JsonlParams(dataset="jsonl", **files, **changes))


@pytest.mark.fault(13)
def test_gold_that_says_nothing_is_not_scored(capsys: pytest.CaptureFixture[str]) -> None:
    line = "1 questions have an answer of no word (empty, or an article alone), which is not scored"
    both = {"id": "a", "question": "Where does Bob live?", "answers": ["The", "Bath"]}
    figures = made([both])
    assert figures["answers_of_no_word"] == 1 and line in capsys.readouterr().out
    assert [question.answers for question in questions("train")] == [("Bath",)]
    for answers in ([""], ["The"], ["a", "..."]):
        with pytest.raises(CorpusError, match="train question 'a' has neither answers nor supporting passages"):
            made([both | {"answers": answers}])


@pytest.mark.fault(13)
def test_gold_that_is_not_given_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    row = {"id": "a", "question": "Where does Bob live?", "answers": ["Bath"], "supporting": ["q"]}
    assert made([row | {"context_ids": ["p"]}])["gold_not_given"] == 1
    assert "1 questions name gold passages that are not among their context_ids" in capsys.readouterr().out
    assert "gold_not_given" not in made([row | {"context_ids": ["p", "q"]}])


@pytest.mark.fault(16)
def test_what_is_nearly_a_test_question_is_counted_left_out_or_refused(capsys: pytest.CaptureFixture[str]) -> None:
    other = {"id": "b", "question": "Where does Bob live?", "answers": ["Bath"]}
    near = {"id": "a", "question": "So who built the red bridge of old Ashford town?", "answers": ["acme"]}
    assert made([near, other])["train_questions_near_test"] == 1
    assert "1 training questions are nearly test questions" in capsys.readouterr().out
    figures = made([near, other], near_duplicates="drop")
    assert (figures["train_questions"], figures["train_questions_dropped_because_near_test"]) == (1, 1)
    with pytest.raises(CorpusError, match=r"1 training questions are nearly test questions \(first: 'a' is 't'\)"):
        made([near, other], near_duplicates="refuse")
