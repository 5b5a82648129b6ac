"""What `harr preview` finds before anything is embedded: gold that is not there, rewards that can score nothing."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harr.datasets.preview import read_data
from harr.params.download import JsonlParams
from harr.params.pipeline import MultistepParams, PickParams
from harr.questions.checks import Check, checks

Told = Callable[..., list[Check]]
PASSAGES = [{"id": f"p{n}", "title": f"Town {n}", "text": f"Town {n} lies on the river {n}-bourne."} for n in range(20)]


def question(number: int, **more: Any) -> dict[str, Any]:
    asked = f"Which water passes town {number}?"
    return {"id": f"q{number}", "question": asked, "answer": f"{number}-bourne", "supporting": [f"p{number}"], **more}


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Told:
    """Check 16 training and 4 test questions with some changes to their rows."""
    monkeypatch.chdir(tmp_path)

    def run(*terms: str, pipeline: Any = None, train: dict[str, Any] | None = None, least: int = 1) -> list[Check]:
        Path("passages.jsonl").write_text("".join(json.dumps(row) + "\n" for row in PASSAGES))
        for name, numbers, change in (("train", range(16), train or {}), ("test", range(16, 20), {})):
            rows = [question(number) | change for number in numbers]
            Path(f"{name}.jsonl").write_text(
                "".join(json.dumps(row | {"id": f"{name}{number}"}) + "\n" for number, row in enumerate(rows))
            )
        section = JsonlParams(
            dataset="jsonl", passages=("passages.jsonl",), train=("train.jsonl",), test=("test.jsonl",)
        )
        return checks(read_data(section), terms, pipeline or PickParams(name="pick"), least)

    return run


def test_what_fits_is_said(told: Told) -> None:
    assert told("recall") == [
        Check("ok", "supporting", "all 20 are passages of 20"),
        Check("ok", "reward recall", "all questions have gold passages (supporting)"),
        Check("ok", "answers", "of all 20 questions stand in their gold passages"),
    ]


@pytest.mark.parametrize(
    ("terms", "more", "level", "found"),
    [
        (
            ("recall",),
            {"train": {"supporting": ["p1", "gone"]}},
            "fail",
            "16 of 36 are no passage; first 'gone' of train question 'train0'",
        ),
        (("recall",), {"train": {"context_ids": ["gone"]}}, "fail", "16 of 16 are no passage; first 'gone'"),
        (
            ("recall",),
            {"train": {"supporting": []}},
            "fail",
            "16 of 16 train questions have no gold passages (supporting); first 'train0'",
        ),
        (
            ("answer_f1",),
            {"train": {"answer": None, "answers": []}, "pipeline": MultistepParams(name="multistep")},
            "fail",
            "16 of 16 train questions have no answers; first 'train0'",
        ),
        (("answer_f1",), {}, "fail", "the pipeline writes no answers, so that it is always 0"),
        (
            ("recall",),
            {"train": {"supporting": ["p1", "p2", "p3"]}},
            "warn",
            "2 are made, and 16 questions have up to 3 gold passages",
        ),
        (("recall",), {"train": {"answer": "Bath"}}, "warn", "of 16 of 20 questions stand in none of their gold"),
        (
            ("recall",),
            {"train": {"question": "Is town 3 on the 3-bourne?", "answer": "3-bourne", "supporting": ["p3"]}},
            "warn",
            "of 16 of 20 questions stand in the question; first 'train0'",
        ),
        (("recall",), {"least": 100}, "warn", "4 test questions, at least 100 are wanted"),
    ],
)
def test_what_does_not_fit_is_named(
    told: Told, terms: tuple[str, ...], more: dict[str, Any], level: str, found: str
) -> None:
    if more.get("train", {}).get("answers") == []:
        more["train"].pop("answer")
    seen = [check for check in told(*terms, **more) if check.level != "ok"]
    assert [(check.level, check.found[: len(found)]) for check in seen if check.found.startswith(found)] == [
        (level, found)
    ]
    assert all(check.fix for check in seen)


def test_the_command_ends_with_1_where_something_must_be_mended(workplace: Path) -> None:
    recipe = (workplace / "recipes" / "own_data.yaml").read_text()
    (workplace / "params.yaml").write_text(recipe)
    (workplace / "mine").mkdir()
    for name, rows in {
        "passages": PASSAGES,
        "train": [question(number) for number in range(10)],
        "validation": [question(number) for number in range(10, 12)],
        "test": [question(number) for number in range(12, 20)],
    }.items():
        (workplace / "mine" / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = [sys.executable, "-m", "flows.cli", "preview"]
    good = subprocess.run(command, capture_output=True, text=True)
    assert good.returncode == 0, good.stderr
    assert "all 20 are passages of 20" in good.stdout and "8 test questions, at least 100 are wanted" in good.stdout
    (workplace / "mine" / "train.jsonl").write_text(json.dumps(question(1, supporting=["gone"])) + "\n")
    bad = subprocess.run([*command, "--json"], capture_output=True, text=True)
    assert bad.returncode == 1 and not (workplace / "data").exists()
    assert [one["subject"] for one in json.loads(bad.stdout)["checks"] if one["level"] == "fail"] == ["supporting"]
