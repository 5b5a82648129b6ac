"""What `harr preview` finds before anything is embedded: missing gold, and rewards that can score nothing."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from downloading import write_rows

from flows.checks import checks
from flows.cli import main
from flows.finding import Finding
from harr.datasets.preview import read_data
from harr.errors import ParamsError
from harr.params.download import JsonlParams
from harr.params.pipeline import MultistepParams, PickParams

Checker = Callable[..., list[Finding]]
PASSAGES = [{"id": f"p{n}", "title": f"Town {n}", "text": f"Town {n} lies on the river {n}-bourne."} for n in range(20)]


def question(number: int, **more: Any) -> dict[str, Any]:
    asked = f"Which water passes town {number}?"
    return {"id": f"q{number}", "question": asked, "answer": f"{number}-bourne", "supporting": [f"p{number}"], **more}


@pytest.fixture
def run_checks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checker:
    """A function that checks 16 training and 4 test questions, with some changes to their rows."""
    monkeypatch.chdir(tmp_path)

    def run(*terms: str, pipeline: Any = None, train: dict[str, Any] | None = None, least: int = 1) -> list[Finding]:
        files = {"passages": (write_rows("passages.jsonl", PASSAGES),)}
        for name, numbers, change in (("train", range(16), train or {}), ("test", range(16, 20), {})):
            rows = [question(n) | change | {"id": f"{name}{place}"} for place, n in enumerate(numbers)]
            if change.get("answers") == []:
                rows = [{key: value for key, value in row.items() if key != "answer"} for row in rows]
            files[name] = (write_rows(f"{name}.jsonl", rows),)
        section = JsonlParams(dataset="jsonl", **files)
        return checks(read_data(section), terms, pipeline or PickParams(name="pick"), least)

    return run


ODD = {"question": "Is town 3 on the 3-bourne?", "answer": "3-bourne", "supporting": ["p3"]}
ANSWERING = MultistepParams(name="multistep")


@pytest.mark.parametrize(
    ("term", "train", "more", "level", "found"),
    [
        ("recall", {"supporting": ["p1", "gone"]}, {}, "fail", "16 of 36 are no passage; first 'gone' of train ques"),
        ("recall", {"context_ids": ["gone"]}, {}, "fail", "16 of 16 are no passage; first 'gone'"),
        ("recall", {"supporting": []}, {}, "fail", "16 of 16 train questions have no gold passages (supporting); fi"),
        ("answer_f1", {"answers": []}, {"pipeline": ANSWERING}, "fail", "16 of 16 train questions have no answers; "),
        ("answer_f1", {}, {}, "fail", "the pipeline writes no answers, so that it is always 0"),
        ("recall", {"supporting": ["p1", "p2", "p3"]}, {}, "warn", "2 are made, and 16 questions have up to 3 gold"),
        ("recall", {"answer": "Bath"}, {}, "warn", "of 16 of 20 questions stand in none of their gold"),
        ("recall", ODD, {}, "warn", "of 16 of 20 questions stand in the question; first 'train0'"),
        ("recall", {}, {"least": 100}, "warn", "4 test questions, at least 100 are wanted"),
    ],
)
def test_what_does_not_fit_is_named(
    run_checks: Checker, term: str, train: dict[str, Any], more: dict[str, Any], level: str, found: str
) -> None:
    seen = [check for check in run_checks(term, train=train, **more) if check.level != "ok"]
    assert [check.level for check in seen if check.found.startswith(found)] == [level]
    assert all(check.fix for check in seen)


def test_a_reward_that_cannot_be_imported_is_named(run_checks: Checker) -> None:
    with pytest.raises(ParamsError, match=r"reward\.terms: harr\.types:Passge .* did you mean harr\.types:Passage\?"):
        run_checks("harr.types:Passge")


def test_the_command_ends_with_1_where_something_must_be_mended(
    workplace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "_exit", sys.exit)  # the command ends its process with it
    (workplace / "params.yaml").write_text((workplace / "recipes" / "own_data.yaml").read_text())
    asked = {"train": range(10), "validation": range(10, 12), "test": range(12, 20)}
    rows = {"passages": PASSAGES} | {split: [question(n) for n in numbers] for split, numbers in asked.items()}
    for name, own in rows.items():
        write_rows(f"mine/{name}.jsonl", own)
    with pytest.raises(SystemExit) as ended:
        main("preview")
    output = capsys.readouterr().out
    assert not ended.value.code and "all 20 are passages of 20" in output
    assert "8 test questions, at least 100 are wanted" in output
    write_rows("mine/train.jsonl", [question(1, supporting=["gone"])])
    with pytest.raises(SystemExit) as ended:
        main("preview", "--json")
    assert ended.value.code == 1 and not (workplace / "data").exists()
    found = json.loads(capsys.readouterr().out)["checks"]
    [failed] = [one for one in found if one["level"] == "fail"]
    assert failed["subject"] == "supporting" and failed["fix"].endswith("(download.missing_gold: drop)")
