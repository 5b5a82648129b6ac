"""BEIR's folders and ir_datasets: their rows become ours, grades included; what is wrong is one line."""

import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ir_datasets
import pytest
from ir_datasets.datasets.base import Dataset
from ir_datasets.formats import BaseDocs, BaseQrels, BaseQueries, GenericDoc, GenericQuery, TrecQrel
from pydantic import TypeAdapter

from harr.corpus.passages import Passages, read_questions
from harr.datasets.download import download
from harr.errors import CorpusError
from harr.params.download import DatasetParams

CORPUS = (
    {"_id": "d1", "title": "Ada Brown", "text": "Ada  founded Acme.", "metadata": {}},
    {"_id": "d2", "title": "", "text": "Acme is in Ashford."},
    {"_id": "d3", "title": "Only a title", "text": ""},
    {"_id": "d4", "title": "", "text": ""},
)
QUERIES = (
    {"_id": "q1", "text": "Who founded Acme?"},
    {"_id": "q2", "text": "Where is Acme?"},
    {"_id": "q3", "text": "?"},
)
QRELS = {"train": "q1\td1\t1\nq3\td2\t0\n", "test": "q2\td1\t1\nq2\td2\t2\nq2\td3\t0\n"}


def beir(root: Path, qrels: Mapping[str, str] = QRELS, *, beside: bool = False) -> None:
    """Write a folder in BEIR's layout."""
    judged = root.with_name(f"{root.name}-qrels") if beside else root / "qrels"
    judged.mkdir(parents=True)
    root.mkdir(exist_ok=True)
    with gzip.open(root / "corpus.jsonl.gz", "wt", encoding="utf-8") as corpus:
        corpus.writelines(json.dumps(row) + "\n" for row in CORPUS)
    (root / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in QUERIES))
    for split, lines in qrels.items():
        (judged / f"{split}.tsv").write_text(f"query-id\tcorpus-id\tscore\n{lines}")


def run(**section: Any) -> dict[str, float]:
    params: Any = TypeAdapter(DatasetParams).validate_python(section)
    return download(params, Path("data/corpus"), Path("data/questions"), Path("work/download"))


def read(split: str) -> list[tuple[str, str, tuple[str, ...], tuple[int, ...]]]:
    questions = read_questions(Path(f"data/questions/{split}.jsonl"))
    return [(question.id, question.text, question.gold_ids, question.grades) for question in questions]


@pytest.mark.parametrize("beside", [False, True])
def test_a_folder_of_beir_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beside: bool) -> None:
    monkeypatch.chdir(tmp_path)
    beir(tmp_path / "nf", beside=beside)
    figures = run(dataset="beir", root="nf")
    assert figures["passages"] == 3 and figures["left_out"] == 1
    assert figures["train_queries_without_relevant_passages"] == 1
    stored = Passages.open(Path("data/corpus"))
    assert stored.contents(0, 3) == ["Ada Brown: Ada founded Acme.", "Acme is in Ashford.", "Only a title"]
    assert read("train") == [("q1", "Who founded Acme?", ("d1",), (1,))]
    assert read("test") == [("q2", "Where is Acme?", ("d2", "d1"), (2, 1))]


def test_ids_of_other_scripts_and_signs_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mark of UTF-8 first, a no-break space and a line separator within ids, a blank line, a negative grade."""
    monkeypatch.chdir(tmp_path)
    beir(tmp_path / "nf")
    odd = "é\u00a0\u2028ü"
    rows = [*CORPUS, {"_id": odd, "title": "", "text": "Acme in words."}]
    with gzip.open("nf/corpus.jsonl.gz", "wt", encoding="utf-8") as corpus:
        corpus.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    Path("nf/qrels/test.tsv").write_text(f"\ufeffq2\t{odd}\t2\nq2\td1\t-1\n\n", encoding="utf-8")
    run(dataset="beir", root="nf")
    assert read("test") == [("q2", "Where is Acme?", ("é ü",), (2,))]


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"test": "dev"}, "no qrels/dev.tsv in nf; it judges test, train"),
        ({"root": "gone"}, "no queries.jsonl in gone"),
        ({"qrels": {**QRELS, "test": "q2 d1 1\n"}}, "test.tsv:2: 'q2 d1 1'; expected query-id, corpus-id and score"),
        ({"qrels": {**QRELS, "test": ""}}, "no test questions"),
        ({"qrels": {**QRELS, "test": "q9\td1\t1\n"}}, "test judges query q9, which is not among the queries"),
        ({"qrels": {**QRELS, "test": "q2\td9\t1\n"}}, "supporting ids of test questions are not in the corpus"),
    ],
)
def test_what_is_wrong_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any], line: str
) -> None:
    monkeypatch.chdir(tmp_path)
    beir(tmp_path / "nf", change.pop("qrels", QRELS))
    with pytest.raises(CorpusError, match=line.replace(".", r"\.")):
        run(**{"dataset": "beir", "root": "nf", **change})
    assert not Path("data/corpus").exists()


class Docs(BaseDocs):
    """Two documents, one with a character that would act on a terminal, as SciFact's have."""

    def docs_iter(self) -> Any:
        return iter([GenericDoc("d1", "Ada founded\x96 Acme."), GenericDoc("d2", "Acme is in Ashford.")])


class Queries(BaseQueries):
    """Two queries."""

    def queries_iter(self) -> Any:
        return iter([GenericQuery("q1", "Who founded Acme?"), GenericQuery("q2", "Where is Acme?")])


class Qrels(BaseQrels):
    """One judgement."""

    def __init__(self, *judged: TrecQrel) -> None:
        self.judged = judged

    def qrels_iter(self) -> Any:
        return iter(self.judged)


def test_a_data_set_of_ir_datasets_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    known = {
        "harr-tests/train": Dataset(Docs(), Queries(), Qrels(TrecQrel("q1", "d1", 1, "0"))),
        "harr-tests/test": Dataset(
            Docs(), Queries(), Qrels(TrecQrel("q2", "d2", 2, "0"), TrecQrel("q2", "d1", 0, "0"))
        ),
        "harr-tests/bare": Dataset(Docs()),
    }
    for name, dataset in known.items():
        if name not in ir_datasets.registry:
            ir_datasets.registry.register(name, dataset)
    assert run(dataset="ir_datasets", train="harr-tests/train", test="harr-tests/test")["passages"] == 2
    assert read("train") == [("q1", "Who founded Acme?", ("d1",), (1,))]
    assert read("test") == [("q2", "Where is Acme?", ("d2",), (2,))]
    assert Passages.open(Path("data/corpus")).take([0])[0].text == "Ada founded Acme."
    for name, line in (("gone", "gone is no data set of ir_datasets"), ("harr-tests/bare", "has no judged queries")):
        with pytest.raises(CorpusError, match=line):
            run(dataset="ir_datasets", train=name, test="harr-tests/test")


class Unreached(BaseDocs):
    """Documents that are fetched when they are asked for, and cannot be."""

    def docs_iter(self) -> Any:
        raise ConnectionError("no route to host")


def test_documents_that_cannot_be_fetched_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a network; a wrong name of the training part is told before anything is fetched."""
    monkeypatch.chdir(tmp_path)
    if "harr-tests/unreached" not in ir_datasets.registry:
        ir_datasets.registry.register("harr-tests/unreached", Dataset(Unreached(), Queries(), Qrels()))
    for name, line in (
        ("harr-tests/unreached", r"harr-tests/unreached of ir_datasets cannot be read \(.*no route to host\); connect"),
        ("gone", "gone is no data set of ir_datasets"),
    ):
        with pytest.raises(CorpusError, match=line):
            run(dataset="ir_datasets", train=name, test="harr-tests/unreached")
