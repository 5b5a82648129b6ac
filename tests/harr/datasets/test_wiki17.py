"""HoVer and HotpotQA's fullwiki setting over a few articles, in the official and in the hub's formats."""

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harr.corpus.passages import Passages, read_questions
from harr.datasets import DATASETS
from harr.datasets.download import download
from harr.datasets.hub import FILES, WIKI17
from harr.datasets.preview import read_split
from harr.errors import CorpusError
from harr.params.download import HoverParams, HubParams
from harr.types import Question

ARTICLES = {"Ada Brown": "A chemist.", "Acme": "A firm.", "AT&T": "Another firm.", "Empty": " ", "Ashford": "A town."}
CORPUS, QUESTIONS, WORK = Path("data/corpus"), Path("data/questions"), Path("work/download")


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = Path("hub").joinpath(*WIKI17)
    path.parent.mkdir(parents=True)
    rows = [{"_id": str(n), "title": title, "text": text} for n, (title, text) in enumerate(ARTICLES.items())]
    path.write_bytes(gzip.compress("\n".join(map(json.dumps, rows)).encode()))


def claim(number: int, *titles: str, label: str = "SUPPORTED") -> dict[str, Any]:
    facts = [[title, 0] for title in titles]
    hops = len(dict.fromkeys(titles))
    return {
        "uid": f"c{number}",
        "claim": f"Claim {number}.",
        "supporting_facts": facts,
        "label": label,
        "num_hops": hops,
    }


def write_official(train: list[dict[str, Any]], test: list[dict[str, Any]]) -> HoverParams:
    Path("hover").mkdir()
    Path("hover/hover_train_release_v1.1.json").write_text(json.dumps(train))
    Path("hover/hover_dev_release_v1.1.json").write_text(json.dumps(test))
    return HoverParams(dataset="hover", claims="hover", root="hub")


def gold_of(question: Question) -> list[str]:
    passages = Passages.open(CORPUS)
    return [passages.take([passages.rows_of([pid])[pid]])[0].title for pid in question.gold_ids]


def test_official_claims_name_articles_and_those_without_are_left_out() -> None:
    train = [claim(0, "Acme", "Ada Brown"), claim(1, "Acme", "Nowhere"), claim(2, "Acme", "AT&amp;T", "Ashford")]
    test = [claim(3, "Ada Brown", "Acme", "Ada Brown", label="NOT_SUPPORTED")]
    counts = download(write_official(train, test), CORPUS, QUESTIONS, WORK)
    assert counts["passages"] == 4 and counts["unreachable_questions"] == 1
    (question,) = read_questions(QUESTIONS / "test.jsonl")
    assert gold_of(question) == ["Ada Brown", "Acme"]
    assert (question.answers, question.kind, question.candidate_ids) == (("no",), "2hop", ())
    kept = read_questions(QUESTIONS / "train.jsonl")
    assert [(q.id, gold_of(q)) for q in kept] == [("c0", ["Acme", "Ada Brown"]), ("c2", ["Acme", "AT&T", "Ashford"])]


def test_claims_of_some_hops_are_taken_and_the_limit_counts_those() -> None:
    train = [claim(n, *list(ARTICLES)[: 2 + n % 2]) for n in range(6)]
    params = write_official(train, train).model_copy(update={"hops": (3,), "train_questions": 2})
    questions, _ = read_split(params, "train")
    assert questions == []  # all of them are test claims, too
    assert [question.id for question in read_split(params, "test")[0]] == ["c1", "c3", "c5"]
    assert DATASETS[params.dataset].origin(params) == "BeIR/hotpotqa, from the folder hub"


def test_the_hubs_parquet_files_say_the_same() -> None:
    row = claim(7, "Acme", "Ada Brown", label="SUPPORTED")
    facts = [{"key": title, "value": place} for title, place in row["supporting_facts"]]
    Path("hover").mkdir()
    for name, number in (("train", 7), ("validation", 8)):
        table = pa.Table.from_pylist(
            [{**row, "uid": f"c{number}", "claim": name, "supporting_facts": facts, "label": 1}]
        )
        pq.write_table(table, f"hover/{name}-00000-of-00001.parquet")
    download(HoverParams(dataset="hover", claims="hover", root="hub"), CORPUS, QUESTIONS, WORK)
    (question,) = read_questions(QUESTIONS / "test.jsonl")
    assert question.answers == ("yes",) and gold_of(question) == ["Acme", "Ada Brown"]


def test_hotpotqa_fullwiki_searches_the_articles() -> None:
    repository, train, test = FILES["hotpotqa"]
    row = {
        "question": "Who?",
        "answer": "Ada",
        "type": "bridge",
        "level": "hard",
        "context": {"title": [], "sentences": []},
    }
    for pattern, titles in ((train, ["Acme", "Nowhere"]), (train, ["Acme", "Ada Brown"]), (test, ["Ashford", "Acme"])):
        path = Path("hub") / repository / pattern.replace("*", f"-{len(titles[1])}")
        path.parent.mkdir(parents=True, exist_ok=True)
        facts = {"title": titles, "sent_id": [0, 0]}
        pq.write_table(
            pa.Table.from_pylist([{**row, "id": titles[1], "question": titles[1], "supporting_facts": facts}]), path
        )
    counts = download(HubParams(dataset="hotpotqa", root="hub", passages="wiki17"), CORPUS, QUESTIONS, WORK)
    assert counts["unreachable_questions"] == 1
    (question,) = read_questions(QUESTIONS / "train.jsonl")
    assert gold_of(question) == ["Acme", "Ada Brown"] and not question.candidate_ids


def test_what_is_wrong_is_one_line() -> None:
    with pytest.raises(CorpusError, match=r"neither hover_train_release_v1\.1\.json nor train\*\.parquet in nowhere"):
        download(HoverParams(dataset="hover", claims="nowhere", root="hub"), CORPUS, QUESTIONS, WORK)
    with pytest.raises(
        CorpusError, match=r"hover_train_release_v1\.1\.json: row 1: no claim of HoVer; expected uid, claim"
    ):
        download(write_official([{"uid": "a", "claim": "x", "label": "MAYBE"}], []), CORPUS, QUESTIONS, WORK)
    with pytest.raises(ValueError, match="musique does not name articles of wiki17"):
        HubParams(dataset="musique", passages="wiki17")
