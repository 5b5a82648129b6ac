"""RULER's QA: gold paragraphs of a question among those of no question."""

from pathlib import Path

import pytest
from downloading import questions, run, write_rows
from harr_lengths.documents import noise_for, stretch_stories
from harr_lengths.stories import documents
from harr_ruler.questions import ParagraphsParams, paragraphs

from harr.errors import CorpusError
from harr.params.download import FunctionDatasetParams


@pytest.fixture
def ruler_qa(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ParagraphsParams:
    """Six questions of two paragraphs each, among 50 others."""
    monkeypatch.chdir(tmp_path)
    rows = [{"id": f"p{i}", "title": f"Title {i}", "text": f"Paragraph {i}."} for i in range(62)]
    asked = [
        {"id": f"q{i}", "question": f"What of {i}?", "answers": [f"a{i}"], "supporting": [f"p{i}", f"p{i + 6}"]}
        for i in range(6)
    ]
    files = {"noise": write_rows("paragraphs.jsonl", rows), "train": (write_rows("train.jsonl", asked[:3]),)}
    return ParagraphsParams(test=(write_rows("test.jsonl", asked[3:]),), sentences=12, **files)


def test_gold_paragraphs_stand_among_those_of_no_question(ruler_qa: ParagraphsParams) -> None:
    source = documents(paragraphs(ruler_qa))
    texts = {passage.id: passage.text for passage in source.passages}
    train, test = list(source.train), list(source.test)
    assert [len(train), len(test)] == [3, 3]
    for question in (*train, *test):
        number = int(question.text.split()[-1].rstrip("?"))
        gold = [texts[pid] for pid in question.gold_ids]
        assert gold == [f"Title {i}: Paragraph {i}." for i in (number, number + 6)]
        assert question.answers == (f"a{number}",) and question.kind == "qa" and len(question.candidate_ids) == 12
        others = {texts[pid] for pid in question.candidate_ids} - set(gold)
        assert all(int(text.split()[-1].rstrip(".")) >= 12 for text in others) and len(others) == 10
    noise = [{pid for q in split for pid in q.candidate_ids if pid.startswith("n")} for split in (train, test)]
    assert not noise[0] & noise[1]
    orders = {q.candidate_ids.index(q.gold_ids[0]) < q.candidate_ids.index(q.gold_ids[1]) for q in (*train, *test)}
    assert orders == {True, False}, "gold paragraphs come in any order"
    assert [
        len(passages) for _, passages in stretch_stories(paragraphs(ruler_qa), 20, noise_for(paragraphs(ruler_qa), 20))
    ] == [20] * 3


def test_a_question_without_its_paragraphs_is_one_line(ruler_qa: ParagraphsParams) -> None:
    for more, line in (
        ({}, "question 'odd': no supporting paragraphs; RULER's QA hides"),
        ({"supporting": ["p99"]}, r"question 'odd': supporting 'p99' is not in .*paragraphs\.jsonl"),
    ):
        write_rows("test.jsonl", [{"id": "odd", "question": "What?", "answers": ["a"], **more}])
        with pytest.raises(CorpusError, match=line):
            documents(paragraphs(ruler_qa))


def test_stage_download_takes_it(ruler_qa: ParagraphsParams) -> None:
    settings = ruler_qa.model_dump(exclude={"validation_questions"})
    section = FunctionDatasetParams(
        dataset="function", function="harr_ruler.questions:DATASET", validation_questions=1, settings=settings
    )
    counts = run(section)
    assert (counts["train_questions"], counts["validation_questions"], counts["test_questions"]) == (2, 1, 3)
    assert all(len(question.candidate_ids) == 12 for question in questions("validation"))
