"""MedQuAD from XML files and JSON lines: documents, chunks, gold, and what is wrong with files."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from downloading import passages, questions, run, write_rows
from harr_documents.chunks import Spans
from harr_documents.tokens import token_spans
from harr_medquad.settings import MedQuADParams
from pydantic import ValidationError

from harr.errors import CorpusError
from harr.params.download import FunctionDatasetParams

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


def section(validation_questions: int = 0, **settings: Any) -> FunctionDatasetParams:
    function = "harr_medquad.dataset:DATASET"
    return FunctionDatasetParams(
        dataset="function", function=function, validation_questions=validation_questions, settings=settings
    )


@pytest.fixture(scope="module")
def spans(tiny: str) -> Spans:
    return token_spans(tiny)


@pytest.fixture
def load(tiny: str) -> Callable[..., Any]:
    """Download rows, or a folder; figures, passages, questions by id."""

    def make(train: list[Any] = TRAIN, test: list[Any] = TEST, **more: Any) -> tuple[Any, ...]:
        if "root" not in more:
            more |= {"train": (write_rows("train.jsonl", train),), "test": (write_rows("test.jsonl", test),)}
        figures = run(section(more.pop("validation_questions", 0), tokenizer=tiny, chunk_tokens=64, **more))
        return figures, passages(), {one.id: one for split in ("train", "test") for one in questions(split)}

    return make


def test_validation_questions_are_of_documents_that_nothing_else_asks_for(load: Callable[..., Any]) -> None:
    pages = [row(f"{page}{number}", f"{page} {number}.", f"http://h/{page}") for page in "pqrs" for number in (1, 2)]
    figures, _, others = load(train=[TRAIN[0], *pages], validation_questions=3)
    validation = questions("validation")
    assert len(validation) == figures["validation_questions"] == 3
    elsewhere = {document for question in others.values() for document in question.gold_documents}
    assert not elsewhere & {document for question in validation for document in question.gold_documents}
    assert {"c1", "a3"} <= others.keys()
    with pytest.raises(CorpusError, match="leaves no training document"):
        load(train=[TRAIN[0], *pages], validation_questions=90)


def test_questions_of_one_page_share_a_document(load: Callable[..., Any], spans: Spans) -> None:
    figures, stored, asked = load()
    heart = asked["a1"].gold_documents
    assert heart == asked["a2"].gold_documents == asked["a3"].gold_documents and len(heart) == 1
    own = [passage for passage in stored if passage.document == heart[0]]
    assert [passage.id for passage in own] == [f"{heart[0]}_chunk_{number}" for number in range(len(own))]
    assert asked["a1"].gold_ids == tuple(passage.id for passage in own)
    first = "Organ | Anatomy | w | x | y\n\n"
    assert all(passage.title == "Heart" and passage.text.startswith(first) for passage in own)
    body = " ".join(passage.text.removeprefix(first) for passage in own)
    assert body == f"{LONG} It beats. It rests."
    assert max(len(spans(passage.content)) for passage in stored) <= 64
    assert (figures["rows"], figures["rows_without_answer"], figures["documents"]) == (6, 1, 3)
    assert "n1" not in asked
    assert [passage.text for passage in stored].count("A bone is hard.") == 1 == figures["equal_chunks_left_out"]
    assert asked["c1"].gold_ids == asked["b1"].gold_ids and len(asked["c1"].gold_ids) == 1
    assert figures["passages"] == len(stored) == figures["chunks"] - 1
    _, stored, asked = load(documents="answer")
    assert asked["a2"].gold_ids == ("a2_chunk_0",) and asked["a3"].gold_documents == ("a3",)
    assert len(asked["a1"].gold_ids) > 10 and set(asked["a1"].gold_documents) == {"a1"}
    assert {passage.document for passage in stored} == {"a1", "a2", "a3", "b1"}


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


def test_official_files(load: Callable[..., Any]) -> None:
    root = Path("root")
    for page in range(9):
        answer = f"It\n   beats {page}."
        write_xml(root / f"1_One_QA/{page}.xml", f"http://h/{page}", answer, number=f"{page:07}")
    write_xml(root / "2_Two_QA/0.xml", "http://h/1", "It pumps &amp; rests.", "", number="0000001")
    figures, stored, asked = load(root=str(root), test_share=0.3, seed=1)
    assert (figures["rows"], figures["rows_without_answer"], figures["documents"]) == (11, 1, 9)
    assert asked["1-0000001-1"].gold_documents == asked["2-0000001-1"].gold_documents
    joined = next(passage for passage in stored if "pumps" in passage.text)
    assert joined.text == "Disease | Disorders | Cor | Pump\n\nIt beats 1. It pumps & rests."
    assert asked["1-0000001-1"].answers == ("It beats 1.",)
    drawn = []
    for seed in (1, 1, 2):
        load(root=str(root), test_share=0.3, seed=seed)
        drawn.append({question.id for question in questions("test")})
        assert 3 <= len(drawn[-1]) <= 4
        assert ("2-0000001-1" in drawn[-1]) == ("1-0000001-1" in drawn[-1]), "pages are never torn apart"
    assert drawn[0] == drawn[1] != drawn[2]


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"train": [*TRAIN, TRAIN[1]]}, "question 'b1' stands twice, at train.jsonl:2 and train.jsonl:5"),
        ({"train": [{"id": "x", "question": "Who?", "answer": "Me."}]}, "train.jsonl:1: question without url"),
        ({"train": [TRAIN[2]], "test": [TRAIN[2]]}, "none of 2 medquad rows has an answer"),
        ({"root": "nowhere"}, "nowhere is no folder; set download.settings.root"),
        ({"root": "empty"}, "no *.xml under empty"),
        ({"root": "broken"}, "broken/a.xml is no XML"),
        ({"root": "other"}, "other/a.xml holds <html>, expected MedQuAD's <Document>"),
        ({"root": "silent"}, "silent/a.xml: question 1 has no text"),
    ],
)
def test_what_is_wrong_is_one_clear_line(load: Callable[..., Any], change: dict[str, Any], line: str) -> None:
    Path("empty").mkdir()
    write_xml(Path("broken/a.xml"), "http://h", "It beats.")
    cut = Path("broken/a.xml").read_text()
    Path("broken/a.xml").write_text(cut[: len(cut) // 2])
    for name, text in (("other", "<html></html>"), ("silent", cut.replace("What is 0000001-1 ?", " "))):
        Path(name).mkdir()
        Path(name, "a.xml").write_text(text)
    with pytest.raises(CorpusError) as error:
        load(**change)
    assert line in str(error.value) and "\n" not in str(error.value)
    assert not Path("data").exists()  # nothing was published


def test_a_section_names_one_source() -> None:
    for wrong in (
        {},
        {"root": "r", "train": ("a",), "test": ("b",)},
        {"train": ("a",)},
        {"root": "r", "documents": "answer", "scrape": {}},
    ):
        with pytest.raises(ValidationError, match=r"give root|documents: page"):
            MedQuADParams.model_validate(wrong)
