"""HoVer and HotpotQA's fullwiki setting over a few articles, in the official and in the hub's formats."""

import json
from pathlib import Path
from typing import Any

import pytest
from downloading import gold_titles, questions, run, write_rows
from harr_open_domain.hub import FILES
from harr_wiki17.articles import WIKI17

from harr.errors import CorpusError
from harr.params.download import FunctionDatasetParams

ARTICLES = {"Ada Brown": "A chemist.", "Acme": "A firm.", "AT&T": "Another firm.", "Empty": " ", "Ashford": "A town."}


@pytest.fixture(autouse=True)
def articles(place: Path) -> None:
    rows = ({"_id": str(n), "title": title, "text": text} for n, (title, text) in enumerate(ARTICLES.items()))
    write_rows(Path("hub").joinpath(*WIKI17), rows)


def claim(number: int, *titles: str, label: str = "SUPPORTED") -> dict[str, Any]:
    row = {"uid": f"c{number}", "claim": f"Claim {number}.", "label": label, "num_hops": len(dict.fromkeys(titles))}
    return row | {"supporting_facts": [[title, 0] for title in titles]}


def section(name: str, **settings: Any) -> FunctionDatasetParams:
    function = f"harr_wiki17.{name}:DATASET"
    return FunctionDatasetParams(dataset="function", function=function, settings={"root": "hub", **settings})


def write_official(train: list[dict[str, Any]], test: list[dict[str, Any]]) -> FunctionDatasetParams:
    Path("hover").mkdir()
    Path("hover/hover_train_release_v1.1.json").write_text(json.dumps(train))
    Path("hover/hover_dev_release_v1.1.json").write_text(json.dumps(test))
    return section("hover", claims="hover")


def test_official_claims_name_articles_and_those_without_are_left_out() -> None:
    train = [claim(0, "Acme", "Ada Brown"), claim(1, "Acme", "Nowhere"), claim(2, "Acme", "AT&amp;T", "Ashford")]
    test = [claim(3, "Ada Brown", "Acme", "Ada Brown", label="NOT_SUPPORTED")]
    counts = run(write_official(train, test))
    assert counts["passages"] == 4 and counts["unreachable_questions"] == 1
    (question,) = questions("test")
    assert gold_titles(question) == ["Ada Brown", "Acme"]
    assert (question.answers, question.kind, question.candidate_ids) == (("no",), "2hop", ())
    kept = questions("train")
    assert [(q.id, gold_titles(q)) for q in kept] == [
        ("c0", ["Acme", "Ada Brown"]),
        ("c2", ["Acme", "AT&T", "Ashford"]),
    ]


def test_hotpotqa_fullwiki_searches_the_articles() -> None:
    repository, train, test = FILES["hotpotqa"]
    row = {"answer": "Ada", "type": "bridge", "level": "hard", "context": {"title": [], "sentences": []}}
    for pattern, titles in ((train, ["Acme", "Nowhere"]), (train, ["Acme", "Ada Brown"]), (test, ["Ashford", "Acme"])):
        own = {"id": titles[1], "question": titles[1], "supporting_facts": {"title": titles, "sent_id": [0, 0]}}
        write_rows(Path("hub") / repository / pattern.replace("*", f"-{len(titles[1])}"), [row | own])
    counts = run(section("hotpotqa"))
    assert counts["unreachable_questions"] == 1
    (question,) = questions("train")
    assert gold_titles(question) == ["Acme", "Ada Brown"] and not question.candidate_ids


def test_what_is_wrong_is_one_line() -> None:
    with pytest.raises(CorpusError, match=r"neither hover_train_release_v1\.1\.json nor train\*\.parquet in nowhere"):
        run(section("hover", claims="nowhere"))
    odd = write_official([{"uid": "a", "claim": "x", "label": "MAYBE"}], [])
    with pytest.raises(CorpusError, match=r"release_v1\.1\.json: row 1: no claim of HoVer; expected uid, claim"):
        run(odd)
