"""The flat examples learn, and fit on one page without harr."""

import gc
import importlib
import runpy
from pathlib import Path
from statistics import mean

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.mark.services  # half a minute, and a gigabyte
@pytest.mark.parametrize(("method", "steps", "rate"), [("grpo", 7, 3e-5), ("ppo", 6, 5e-5), ("pqn", 7, 3e-5)])
def test_a_flat_example_learns_and_is_one_page_without_harr(
    method: str, steps: int, rate: float, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It runs for half its steps, at a learning rate above its own."""
    gc.collect()  # flows collects garbage rarely, and a model with its optimizer takes half a gigabyte
    text = (EXAMPLES / f"{method}_flat.py").read_text(encoding="utf-8")
    assert text.count("\n") <= 120
    ours = ("from harr", "import harr", "import milvus", "import dvc")
    assert not any(line.startswith(ours) for line in text.split("\n"))
    monkeypatch.syspath_prepend(str(EXAMPLES))
    example = importlib.import_module(f"{method}_flat")
    monkeypatch.setattr(example, "LEARNING_RATE", rate)
    rewards = example.train(steps, seed=0)
    assert mean(rewards[-3:]) > mean(rewards[:3]) + 0.3, f"{method}: {rewards}"
    assert capsys.readouterr().out.count("reward") == len(rewards), "it shows a line a step"


@pytest.mark.parametrize(("stem", "line"), [("new_pipeline", "answer: the Esk"), ("new_reward", "reward 1.50")])
def test_an_example_of_a_seam_is_half_a_page_and_runs(
    stem: str, line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = EXAMPLES / f"{stem}.py"
    assert path.read_text(encoding="utf-8").count("\n") <= 60
    monkeypatch.syspath_prepend(str(EXAMPLES))
    runpy.run_path(str(path), run_name="__main__")
    assert line in capsys.readouterr().out
