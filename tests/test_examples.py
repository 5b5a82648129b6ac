"""The flat examples learn, and stay on one page without harr."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from statistics import mean
from types import ModuleType

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
FLAT = sorted(path.stem for path in EXAMPLES.glob("*_flat.py"))


def load(stem: str) -> ModuleType:
    """Import an example from its file."""
    spec = importlib.util.spec_from_file_location(f"examples_{stem}", EXAMPLES / f"{stem}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("stem", FLAT)
def test_a_flat_example_is_one_page_without_harr(stem: str) -> None:
    text = (EXAMPLES / f"{stem}.py").read_text(encoding="utf-8")
    assert text.count("\n") <= 120
    assert not any(
        line.startswith(("from harr", "import harr", "import milvus", "import dvc")) for line in text.split("\n")
    )


@pytest.mark.parametrize("stem", FLAT)
def test_a_flat_example_learns(stem: str, capsys: pytest.CaptureFixture[str]) -> None:
    rewards = load(stem).train(seed=0)
    assert mean(rewards[-3:]) > mean(rewards[:3]) + 0.3, f"{stem}: {rewards}"
    assert capsys.readouterr().out.count("reward") == len(rewards), "it shows a line a step"


@pytest.mark.parametrize(("stem", "line"), [("new_pipeline", "answer: the Esk"), ("new_reward", "reward 1.50")])
def test_an_example_of_a_seam_is_half_a_page_and_runs(stem: str, line: str) -> None:
    path = EXAMPLES / f"{stem}.py"
    assert path.read_text(encoding="utf-8").count("\n") <= 60
    found = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=True, env=environment())
    assert line in found.stdout


def environment() -> dict[str, str]:
    """The environment of a script that imports harr from this tree."""
    return os.environ | {"PYTHONPATH": str(EXAMPLES.parent)}
