"""Evaluating any file of questions: what is refused before anything is played; and damaged figures."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from harr.errors import CorpusError, DamagedFile, ParamsError
from harr.io.jsonl import read_rows
from harr.params import Params
from tasks.evaluate import evaluate_file
from tasks.evaluation_outputs import show
from tasks.play import with_arms

RECIPES = Path(__file__).parents[2] / "recipes"


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A question file; any playing fails the test."""

    def played(*values: Any, **named: Any) -> None:
        raise AssertionError("it was played")

    monkeypatch.setattr("tasks.evaluate.play_arms", played)
    path = tmp_path / "q.jsonl"
    path.write_text(json.dumps({"id": "q1", "question": "Where?", "answers": ["Bath"]}) + "\n")
    return path


@pytest.mark.parametrize(
    ("recipe", "arm", "said"),
    [
        ("smoke", "bm25", "index.full_text"),
        ("smoke", "sft", "evaluate.arms sft does not go with train.method grpo"),
        ("agent_small", "history", "evaluate.arms history does not go with train.method agent"),
    ],
)
def test_an_arm_that_does_not_go_with_the_method_is_refused(recipe: str, arm: str, said: str, asked: Path) -> None:
    values = yaml.safe_load((RECIPES / f"{recipe}.yaml").read_text())
    values["index"] = {**values.get("index", {}), "full_text": recipe != "smoke"}
    params = Params.model_validate(values | {"evaluate": {"arms": ["trained"]}})
    with pytest.raises(ParamsError) as error:
        evaluate_file(params, asked, asked.with_name("out.json"), None, [arm])
    assert str(error.value).startswith(f"--arms {arm}: ") and said in str(error.value)
    assert "\n" not in str(error.value) and not asked.with_name("out.json").exists()


def test_the_arms_of_every_recipe_go_with_it() -> None:
    for path in sorted(RECIPES.glob("*.yaml")):
        params = Params.load(path)
        names = [arm if isinstance(arm, str) else arm.name for arm in params.evaluate.arms]
        assert with_arms(params, names).model_dump() == params.model_dump(), path


def test_questions_and_out_are_looked_at_before_anything_is_played(asked: Path) -> None:
    params, out, folder = Params.load(RECIPES / "smoke.yaml"), asked.with_name("out.json"), asked.with_name("folder")
    folder.mkdir()
    os.mkfifo(folder / "pipe")
    (folder / "empty.jsonl").touch()
    for questions, place, said in (
        (folder / "none.jsonl", out, ".*none.jsonl is missing; name a file that is there"),
        (Path("/dev/zero"), out, "/dev/zero is no file; name a file that is there"),
        (folder / "pipe", out, ".*pipe is no file; name a file that is there"),
        (folder, out, ".*folder is no file; name a file that is there"),
        (folder / "empty.jsonl", out, "--questions .*empty.jsonl holds no question"),
        (asked, folder, "--out .*folder is a folder; name another file"),
        (asked, asked, "--out .*q.jsonl is the file of the questions; name another file"),
        (asked, Path("/dev/null"), "--out /dev/null is no file; name another file"),
        (asked, asked / "out.json", r"--out .*out.json cannot be written \(.*\); name another file"),
        (asked, Path("/proc/out.json"), r"--out .*out.json cannot be written \(.*\); name another file"),
    ):
        with pytest.raises(CorpusError, match=said):
            evaluate_file(params, questions, place, None, [])
    assert sorted(os.listdir(asked.parent)) == ["folder", "q.jsonl"]
    with pytest.raises(CorpusError, match="/dev/zero is no file; name a file"):
        next(read_rows(Path("/dev/zero")))
    with pytest.raises(AssertionError, match="it was played"):
        evaluate_file(params, asked, out, None, ["frozen"])


@pytest.mark.fault(3)
@pytest.mark.parametrize(
    "text", ["", "[1]", "{}", '{"arms": [], "paired": {}}', '{"arms": {"trained": 3}, "paired": {}}']
)
def test_damaged_figures_are_one_line(text: str, workplace: Path) -> None:
    (workplace / "metrics").mkdir()
    (workplace / "metrics/evaluate.json").write_text(text)
    with pytest.raises(DamagedFile, match=r"metrics/evaluate.json.* is damaged \(.*; run `dvc repro "):
        show()
