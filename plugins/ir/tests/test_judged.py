"""BEIR's folders and ir_datasets: their rows become ours, grades included; what is wrong is one line."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ir_datasets
import pytest
from downloading import passages, questions, run, write_rows
from ir_datasets.datasets.base import Dataset
from ir_datasets.formats import BaseDocs, BaseQrels, BaseQueries, GenericDoc, GenericQuery, TrecQrel

from harr.errors import CorpusError
from harr.params.download import FunctionDatasetParams

ODD = "é\u00a0\u2028ü"
CORPUS = (
    {"_id": "d1", "title": "Ada Brown", "text": "Ada  founded Acme.", "metadata": {}},
    {"_id": "d2", "title": "", "text": "Acme is in Ashford."},
    {"_id": "d3", "title": "Only a title", "text": ""},
    {"_id": "d4", "title": "", "text": ""},
    {"_id": ODD, "title": "", "text": "Acme in words."},
)
QUERIES = (
    {"_id": "q1", "text": "Who founded Acme?"},
    {"_id": "q2", "text": "Where is Acme?"},
    {"_id": "q3", "text": "?"},
)
QRELS = {"train": "q1\td1\t1\nq3\td2\t0\n", "test": "q2\td1\t1\nq2\td2\t2\nq2\td3\t0\n"}


def beir(root: Path, qrels: Mapping[str, str] = QRELS, *, apart: bool = False) -> None:
    """Write a folder in BEIR's layout."""
    judged = root.with_name(f"{root.name}-qrels") if apart else root / "qrels"
    judged.mkdir(parents=True)
    write_rows(root / "corpus.jsonl.gz", CORPUS)
    write_rows(root / "queries.jsonl", QUERIES)
    for split, lines in qrels.items():
        (judged / f"{split}.tsv").write_text(f"query-id\tcorpus-id\tscore\n{lines}")


def load(dataset: str, **settings: Any) -> dict[str, float]:
    section = FunctionDatasetParams(dataset="function", function=f"harr_ir.{dataset}:DATASET", settings=settings)
    return run(section)


def read(split: str) -> list[tuple[str, str, tuple[str, ...], tuple[int, ...]]]:
    return [(question.id, question.text, question.gold_ids, question.grades) for question in questions(split)]


@pytest.mark.parametrize("apart", [False, True])
def test_a_folder_of_beir_is_read(apart: bool) -> None:
    beir(Path("nf"), apart=apart)
    figures = load("beir", root="nf")
    assert figures["passages"] == 4 and figures["left_out"] == 1
    assert figures["train_queries_without_relevant_passages"] == 1
    texts = ["Ada Brown: Ada founded Acme.", "Acme is in Ashford.", "Only a title", "Acme in words."]
    assert [passage.content for passage in passages()] == texts
    assert read("train") == [("q1", "Who founded Acme?", ("d1",), (1,))]
    assert read("test") == [("q2", "Where is Acme?", ("d2", "d1"), (2, 1))]


@pytest.mark.parametrize("apart", [False, True])
def test_the_folder_may_be_the_current_one(apart: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    beir(Path("nf"), apart=apart)
    monkeypatch.chdir("nf")
    load("beir", root=".")
    assert read("test") == [("q2", "Where is Acme?", ("d2", "d1"), (2, 1))]


@pytest.mark.parametrize("lines", ["q2\td1\t1.0\nq2\td2\t2.0\n", "q2 0 d1 1\nq2 0 d2 2\n", "q2\t0\td1\t1\nq2 d2 2\n"])
@pytest.mark.parametrize("heading", ["", "query-id\tcorpus-id\trelevance\n"])
def test_judgements_are_read_as_other_programs_write_them(heading: str, lines: str) -> None:
    beir(Path("nf"))
    Path("nf/qrels/test.tsv").write_text(heading + lines)
    load("beir", root="nf")
    assert read("test") == [("q2", "Where is Acme?", ("d2", "d1"), (2, 1))]


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"test": "dev"}, "no qrels/dev.tsv in nf; it judges test, train"),
        ({"root": "gone"}, "no queries.jsonl in gone; set download.settings.root"),
        (
            {"qrels": {**QRELS, "test": "q2 d1\n"}},
            "test.tsv:2: 'q2 d1' has 2 columns; expected query-id, corpus-id and score",
        ),
        ({"qrels": {**QRELS, "test": "q2\td1\tyes\n"}}, "test.tsv:2: score 'yes'; expected a whole number"),
        ({"qrels": {**QRELS, "test": "q2\td1\t0.5\n"}}, "test.tsv:2: score '0.5'; expected a whole number"),
        ({"qrels": {**QRELS, "test": ""}}, "no test questions"),
        ({"qrels": {**QRELS, "test": "q9\td1\t1\n"}}, "test judges query q9, which is not among the queries"),
        ({"qrels": {**QRELS, "test": "q2\td9\t1\n"}}, "supporting ids of test questions are not in the corpus"),
    ],
)
def test_what_is_wrong_is_one_line(change: dict[str, Any], line: str) -> None:
    beir(Path("nf"), change.get("qrels", QRELS))
    settings = {"root": "nf", **change}
    settings.pop("qrels", None)
    with pytest.raises(CorpusError, match=line.replace(".", r"\.")):
        load("beir", **settings)
    assert not Path("data/corpus").exists()


class Docs(BaseDocs):
    """Two documents, one with a character that would act on a terminal, as SciFact's have; or none that is reached."""

    def __init__(self, reached: bool = True) -> None:
        self.reached = reached

    def docs_iter(self) -> Any:
        if not self.reached:
            raise ConnectionError("no route to host")
        return iter([GenericDoc("d1", "Ada founded\x96 Acme."), GenericDoc("d2", "Acme is in Ashford.")])


class Queries(BaseQueries):
    def queries_iter(self) -> Any:
        return iter([GenericQuery("q1", "Who founded Acme?"), GenericQuery("q2", "Where is Acme?")])


class Qrels(BaseQrels):
    def __init__(self, *judged: TrecQrel) -> None:
        self.judged = judged

    def qrels_iter(self) -> Any:
        return iter(self.judged)


def test_a_data_set_of_ir_datasets_is_read() -> None:
    both = Qrels(TrecQrel("q2", "d2", 2, "0"), TrecQrel("q2", "d1", 0, "0"))
    known = {
        "train": Dataset(Docs(), Queries(), Qrels(TrecQrel("q1", "d1", 1, "0"))),
        "test": Dataset(Docs(), Queries(), both),
        "bare": Dataset(Docs()),
        "unreached": Dataset(Docs(reached=False), Queries(), Qrels()),
    }
    for name, dataset in known.items():
        if f"harr-tests/{name}" not in ir_datasets.registry:
            ir_datasets.registry.register(f"harr-tests/{name}", dataset)
    assert load("named", train="harr-tests/train", test="harr-tests/test")["passages"] == 2
    assert read("train") == [("q1", "Who founded Acme?", ("d1",), (1,))]
    assert read("test") == [("q2", "Where is Acme?", ("d2",), (2,))]
    assert passages()[0].text == "Ada founded Acme."
    for train, test, line in (
        ("gone", "test", "gone is no data set of ir_datasets"),
        ("harr-tests/bare", "test", "has no judged queries"),
        ("gone", "unreached", "gone is no data set of ir_datasets"),  # refused before anything is fetched
        ("harr-tests/unreached", "unreached", r"of ir_datasets cannot be read \(.*no route to host\); connect"),
    ):
        with pytest.raises(CorpusError, match=line):
            load("named", train=train, test=f"harr-tests/{test}")
