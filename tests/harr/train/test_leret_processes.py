"""Two real processes on CPU run SFT and IPO as one does: the same rows an update, the same weights."""

import json
import os
import sys
from pathlib import Path

import pytest
import torch
from launching import history, launch
from letters import OnePassage, save_letters
from safetensors.torch import load_file

from harr.errors import ParamsError
from harr.io.files import write_json
from harr.params.train import LeReTParams
from harr.params.train_facts import LoraParams
from harr.rag.pipelines.leret import LeReT, render
from harr.rag.scoring.reward import Reward
from harr.rag.setup import Setup
from harr.train.leret import check_processes, train
from harr.types import Question

QUESTIONS = [f"{first}{second}?" for first in "qwer" for second in "tyu"]
PARAMS = LeReTParams(
    method="leret",
    sft_batch=4,
    sft_learning_rate=3e-3,
    ipo_epochs=1,
    ipo_batch=4,
    ipo_learning_rate=3e-3,
    warmup_steps=2,
    max_tokens=4,
    rows_per_pass=2,
    lora=LoraParams(rank=4, alpha=16),
)


def preference(number: int) -> dict[str, object]:
    """The query with the letter of the question is better; queries are of several lengths."""
    question, split = QUESTIONS[number], "train" if number < 9 else "held_out"
    responses = ["z" * (1 + number % 3), question[0] * 2]
    row = {"id": f"q{number}/1", "question_id": f"q{number}", "hop": 1, "split": split, "scores": [0.0, 1.0]}
    return row | {
        "prompt": render(question, ())[0], "responses": responses, "pairs": [[1, 0]], "sft_target": responses[1],
    }  # fmt: skip


def learn(out: Path) -> None:
    """Train the letters of the current folder; every process leaves its history in ``out``."""
    questions = [Question(f"q{number}", text) for number, text in enumerate(QUESTIONS)]
    program, reward = LeReT(1, template="bare"), Reward({"recall": 1.0})
    setup = Setup(questions, program, OnePassage(), None, reward, "g", "index-1", Path("filtered"), "letters")  # type: ignore[arg-type]
    rows = train(PARAMS, setup, out / "adapter", out / "work", lambda step, values: None, 0)
    write_json(out / f"history-{os.environ.get('RANK', 'alone')}.json", rows)


def weights(out: Path) -> dict[str, torch.Tensor]:
    return load_file(out / "adapter/adapter_model.safetensors")


@pytest.mark.services
def test_two_processes_train_what_one_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    save_letters(Path("letters"), spread=0.3, room=96, printable=True)
    Path("filtered").mkdir()
    rows = [preference(number) for number in range(len(QUESTIONS))]
    Path("filtered/preferences.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    write_json(Path("filtered/manifest.json"), {"index": "index-1", "settings": {}})
    learn(Path("one"))
    done = launch(__file__, "two")
    assert done.returncode == 0, done.stderr
    told, expected = history(Path("two"), "0"), history(Path("one"), "alone")
    assert told == history(Path("two"), "1"), "every figure is that of the whole update"
    assert len(told) == len(expected) == 3 + 3 and told[-1]["held_out_pairs"] == 3.0
    for row, wanted in zip(told, expected, strict=True):
        assert row == pytest.approx(wanted, rel=2e-3, abs=1e-3)
    one, two = weights(Path("one")), weights(Path("two"))
    assert torch.cat([(one[name] - two[name]).abs().flatten() for name in one]).mean() < 1e-4


def test_what_processes_cannot_share_is_refused_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    check_processes(PARAMS)
    with pytest.raises(ParamsError, match=r"sft_batch 4 is no whole passes of 4 in each of 2 .* a divisor of 2"):
        check_processes(PARAMS.model_copy(update={"rows_per_pass": 4}))
    with pytest.raises(ParamsError, match=r"train\.iterations above 1 samples again, in one process"):
        check_processes(PARAMS.model_copy(update={"iterations": 2}))
    monkeypatch.setenv("WORLD_SIZE", "3")
    with pytest.raises(ParamsError, match="sft_batch 4 cannot be dealt out to 3 processes"):
        check_processes(PARAMS)
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    with pytest.raises(ParamsError, match=r"for FSDP, but train\.method leret needs the whole model"):
        check_processes(PARAMS)


if __name__ == "__main__":
    learn(Path(sys.argv[1]))
