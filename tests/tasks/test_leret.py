"""LeReT through its tasks: the suite of preferences, its page, and which model and prompt an arm has."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from styled import Styled, Words

from harr.errors import ExpectationFailed, IndexMismatch
from harr.files import write_json
from harr.generation.traces import open_world
from harr.params import Params
from harr.pipelines.leret import LeReT
from harr.sampling import sample_preferences
from harr.scoring.mix import Reward
from harr.sections import Preferences
from harr.setup import Setup
from tasks.arms import trained_runs
from tasks.checks import expect
from tasks.evaluate import arm_pipelines
from tasks.filter import filter_suite, preferences_frame, write_preferences_page

PARAMS = Params.model_validate(
    {
        "download": {"dataset": "world"},
        "pipeline": {"name": "leret", "template": "bare"},
        "generator": {"kind": "local", "model": "m"},
        "train": {"method": "leret"},
        "evaluate": {"arms": ["base", "few_shot", "sft", "full"], "seeds": 2},
    }
)


@pytest.fixture
def sampled(tmp_path: Path, monkeypatch: Any) -> Path:
    """A folder with data/filtered, made by the teacher."""
    monkeypatch.chdir(tmp_path)
    world = open_world(3, hops=(2,))
    setup = Setup(
        world.questions, LeReT(2, template="bare"), Words(world), None, Reward({"recall": 1.0}), "w", "index-1"
    )
    small = Preferences(pool=8, validation=4, candidates=6, held_out=0.3)
    sample_preferences(small, setup, Styled, Path("data/filtered"), Path("work"), lambda step, values: None, 0)
    return tmp_path


def test_the_suite_holds_and_fails_where_it_should(sampled: Path) -> None:
    frame = preferences_frame.fn()
    assert filter_suite(PARAMS) == "preferences"
    assert expect.fn("preferences", frame) == {"expected_preferences": 10.0}
    for column, value in {"margin": 0.0, "in_other_split": True, "chosen": ""}.items():
        wrong: pd.DataFrame = frame.copy()
        wrong.loc[0, column] = value
        with pytest.raises(ExpectationFailed, match=column):
            expect.fn("preferences", wrong)


def test_the_page_shows_what_was_tried(sampled: Path) -> None:
    page = write_preferences_page.fn().read_text()
    rows = [json.loads(line) for line in Path("data/filtered/preferences.jsonl").read_text().splitlines()]
    assert f"{sum(len(row['pairs']) for row in rows)} pairs of queries at {len(rows)} prompts" in page
    assert (
        "<svg" in page and "hop 2" in page and "http" not in page.replace("http-equiv", "").replace("http://www.w3", "")
    )


def test_an_arm_has_its_own_prompt_and_model(sampled: Path) -> None:
    Path("data/vectors").mkdir(parents=True)
    write_json(Path("data/vectors/manifest.json"), {"identity": "index-1"})
    pipelines: Any = arm_pipelines(PARAMS)
    assert [bool(pipelines[arm].demonstrations) for arm in PARAMS.evaluate.arms] == [False, True, False, False]
    runs = trained_runs(PARAMS)
    assert runs["full"] == [Path("models/adapter"), Path("models/arms/full-1")]
    assert runs["sft"] == [Path("models/adapter/sft"), Path("models/arms/full-1/sft")]
    assert set(runs) == {"full", "sft"}
    write_json(Path("data/vectors/manifest.json"), {"identity": "index-2"})
    with pytest.raises(IndexMismatch, match="was sampled with index index-1, but this one is index-2"):
        arm_pipelines(PARAMS)
