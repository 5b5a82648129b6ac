"""Two real processes on CPU train a language model as one does: the same episodes, weights and resume."""

import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from launching import history, launch
from letters import OnePassage, save_letters, spell
from safetensors.torch import load_file

from harr.errors import ParamsError
from harr.io.files import write_json
from harr.params.train import AgentParams
from harr.params.train_facts import LoraParams
from harr.rag.scoring.reward import Reward
from harr.rag.setup import Setup
from harr.train.agent import check_processes, train
from harr.types import Question

PARAMS = AgentParams(
    method="agent",
    steps=2,
    questions_per_step=3,  # a group is dealt out to both processes
    group_size=4,
    learning_rate=2e-2,
    kl_weight=1e-3,
    episodes_per_pass=3,
    max_tokens=6,
    checkpoint_every=1,
    validate_every=1,
    guard_drop=0.0,
    lora=LoraParams(rank=8, alpha=64),
)


def learn(out: Path, kill_at: int = -1) -> None:
    """Train the letters of the current folder; every process leaves its history in ``out``."""

    def log(step: int, values: Mapping[str, float]) -> None:
        if step == kill_at and "reward_mean" in values:  # a step's own figures, not those of validation before it
            os.kill(os.getpid(), signal.SIGKILL)

    reward = Reward({"letters:share_of_a": 1.0, "letters:variety": 0.1})
    questions = [Question(f"q{number}", text) for number, text in enumerate("qwert")]
    setup = Setup(questions, spell, OnePassage(), None, reward, "letters", writer="letters")  # type: ignore[arg-type]
    setup = replace(setup, validation=[Question("v1", "y"), Question("v2", "u")])
    rows = train(PARAMS, setup, out / "adapter", out / "work", log, 0)
    write_json(out / f"history-{os.environ.get('RANK', 'alone')}.json", rows)


def weights(out: Path) -> dict[str, torch.Tensor]:
    return load_file(out / "adapter/adapter_model.safetensors")


@pytest.mark.services
def test_two_processes_train_what_one_trains_and_resume_after_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    save_letters(Path("letters"), spread=0.5)
    learn(Path("one"))
    done = launch(__file__, "two", "killed@1")
    assert done.returncode != 0 and "exitcode  : -9" in done.stderr, done.stderr
    rows, expected = history(Path("two"), "0"), history(Path("one"), "alone")
    assert rows == history(Path("two"), "1"), "every figure is that of the whole step"
    assert len(rows) == PARAMS.steps and rows[-1]["reward_std"] > 0
    for row, wanted in zip(rows, expected, strict=True):
        for name in ("quantiles", "faults"):
            assert row.pop(name) == wanted.pop(name), "the same episodes"
        for name in {"validation", "validation_before"} & row.keys():
            assert row.pop(name) == pytest.approx(wanted.pop(name), rel=1e-3)
        assert row["own_tokens"] == wanted["own_tokens"] and row["reward_mean"] == wanted["reward_mean"]
        for name in ("kl", "entropy"):  # TRL tells the mean of its passes, and two processes make other passes
            assert row.pop(name) == pytest.approx(wanted.pop(name), rel=0.1)
        assert row == pytest.approx(wanted, rel=1e-3, abs=1e-4)
    one, two = weights(Path("one")), weights(Path("two"))
    apart = torch.cat([(one[name] - two[name]).abs().flatten() for name in one])
    assert apart.mean() < 1e-5

    assert not Path("killed/adapter").exists()
    done = launch(__file__, "killed")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("resuming train at step 1/2") == 1, "the main process alone tells"
    assert history(Path("killed"), "1") == history(Path("two"), "0")
    assert all(torch.equal(two[name], value) for name, value in weights(Path("killed")).items())


def test_what_processes_cannot_share_is_refused_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    check_processes(PARAMS)
    with pytest.raises(ParamsError, match=r"no whole passes of 4 in each of 2 processes; .* a divisor of 6"):
        check_processes(PARAMS.model_copy(update={"episodes_per_pass": 4}))
    monkeypatch.setenv("WORLD_SIZE", "5")
    with pytest.raises(ParamsError, match="12 episodes of a step cannot be dealt out to 5 processes"):
        check_processes(PARAMS)
    for engine in ("FSDP", "DEEPSPEED"):
        monkeypatch.setenv(f"ACCELERATE_USE_{engine}", "true")
        with pytest.raises(ParamsError, match=f"for {engine}, but train.method agent needs the whole model"):
            check_processes(PARAMS)
        monkeypatch.delenv(f"ACCELERATE_USE_{engine}")


if __name__ == "__main__":
    for word in sys.argv[1:]:
        out, _, step = word.partition("@")
        learn(Path(out), int(step or -1))
