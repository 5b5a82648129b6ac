"""Two real processes on a CPU train as one: same rewards, weights and resume, and one error for both."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from launching import ROOT, check_alike, history, killed_hard_at, launch, leave_history
from runs import same, weights
from torch.distributed.tensor import DTensor

from harr.builders.methods import METHODS
from harr.builders.setup import open_setup
from harr.corpus.passages import write_questions
from harr.errors import ParamsError
from harr.io.files import read_json
from harr.params import Params
from harr.params.train import GRPOParams, PolicyParams, PPOParams
from harr.params.train_facts import LoraParams
from tasks.paths import PLACES
from tasks.runtime.launch import join_main_process, joins_main_process

QUESTIONS = Path("data/filtered/questions.jsonl")
COMMON = {
    "steps": 2,
    "questions_per_step": 5,
    "group_size": 4,
    "optimizer": {"learning_rate": 5e-4},
    "states_per_pass": 4,  # a last pass of one state leaves one process without any
    "checkpoints": {"every": 1},
    "validation": {"every": 1},
    "lora": LoraParams(rank=4, alpha=8),
}
GAME: dict[str, object] = {
    "retriever": {"k": 1, "pool": 8, "state": "sep", "max_tokens": 64},
    "pipeline": {"name": "pick", "picks": 2},
    "generator": {"kind": "none"},
    "reward": {"terms": {"recall": 1.0}},
}
ALL: dict[str, PolicyParams] = {
    "grpo": GRPOParams(method="grpo", kl_weight=1e-3, **COMMON),
    "ppo": PPOParams(method="ppo", kl_weight=1e-3, **COMMON),
    "infonce": GRPOParams(method="grpo", **COMMON),
}


HEARD: set[str] = set()
"""Backends of the groups by which this process heard objects; none: the gradients' group."""


def listen() -> None:
    """Record the backends from now on."""

    def heard(ask: Callable[..., None], *given: Any, group: Any = None) -> None:
        HEARD.add(torch.distributed.get_backend(group) if group else "none")
        ask(*given, group=group)

    for name in ("broadcast_object_list", "all_gather_object"):
        setattr(torch.distributed, name, partial(heard, getattr(torch.distributed, name)))


def learn(method: str, out: Path, kill_at: int = -1) -> None:
    """Train on the game of the current folder; every process leaves its history in ``out``."""
    with open_setup(Params.load(), PLACES, QUESTIONS) as setup:
        game = replace(setup, validation=setup.questions[:7])
        rows = METHODS[method].train(ALL[method], game, out / "adapter", out / "work", killed_hard_at(kill_at), 0)
        shards = sum(isinstance(weight, DTensor) for weight in setup.retriever.encoder.model.parameters())
    leave_history(out, rows, shards=shards, heard=sorted(HEARD))


@pytest.fixture
def game(corpus, tiny: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """The sections of a game whose data and params.yaml are in the current folder."""
    monkeypatch.chdir(tmp_path)
    Path("data").mkdir()
    for name in ("corpus", "vectors", "index"):
        Path("data", name).symlink_to(corpus.folder / name)
    write_questions(corpus.questions, QUESTIONS)
    params = GAME | {"encoder": {"model": tiny, "max_tokens": 64}}
    change(**params)
    return params


def change(**sections: object) -> None:
    """Write params.yaml: the smoke recipe with other sections."""
    params = yaml.safe_load((ROOT / "recipes/smoke.yaml").read_text())
    Path("params.yaml").write_text(yaml.safe_dump({**params, **sections}))


@pytest.mark.fault(1)
@pytest.mark.services
def test_two_processes_learn_what_one_learns_and_resume_after_a_kill(game: dict[str, object]) -> None:
    for method in ALL:
        learn(method, Path("one", method))
    done = launch(__file__, *(f"two/{method}" for method in ALL), "killed/grpo@1")
    assert done.returncode != 0 and "exitcode  : -9" in done.stderr, done.stderr
    for method in ALL:
        alone, two = (weights(Path(one, method, "adapter")) for one in ("one", "two"))
        apart = torch.cat([(alone[name] - two[name]).abs().flatten() for name in alone])
        # Adam turns a gradient of pure rounding into a full update: this may be one weight in ten thousand.
        assert apart.mean() < 1e-8 and (apart > 1e-5).float().mean() < 1e-4
        rows = history(Path("two", method), "0")
        assert rows == history(Path("two", method), "1"), "every figure is that of the whole batch"
        check_alike(rows, history(Path("one", method), "alone"))

    heard = [read_json(Path(f"two/grpo/heard-{rank}.json")) for rank in (0, 1)]
    assert heard == [["gloo"]] * 2, "a group of their own: none waits for another in NCCL"
    assert not Path("killed/grpo/adapter").exists()
    done = launch(__file__, "killed/grpo", config="fsdp")
    assert done.returncode == 0, done.stderr
    cut = [read_json(Path(out, "grpo/shards-1.json")) for out in ("two", "killed")]
    assert cut[0] == 0 and cut[1] > 30, "the frozen weights are in shards now, to the same result"
    assert done.stdout.count("resuming train at step 1/2") == 1, "the main process alone prints"
    assert same(weights(Path("two/grpo/adapter")), weights(Path("killed/grpo/adapter")))
    assert history(Path("two/grpo"), "0") == history(Path("killed/grpo"), "1")


@pytest.mark.services
def test_an_error_of_the_main_process_is_one_line_and_ends_both(game: dict[str, object], tmp_path: Path) -> None:
    server = {"kind": "server", "server": {"urls": ["http://127.0.0.1:9/v1"], "deadline_seconds": 1.0}, "model": "none"}
    change(**game | {"pipeline": {"name": "multistep"}, "generator": server})
    more = {"HARR_GPUS": "2", "CUDA_VISIBLE_DEVICES": "0,1", "HOME": str(tmp_path)}
    command = [sys.executable, "-m", "tasks.train"]
    done = subprocess.run(command, env={**os.environ, **more}, capture_output=True, text=True, timeout=400, check=False)
    assert "(local_rank: 1)" in done.stderr, "stage train has launched two"
    lines = [line for line in done.stderr.splitlines() if line.startswith(("error: ", "stopped"))]
    assert done.returncode != 0
    assert len(lines) == 1 and lines[0].startswith("error: generator at http://127.0.0.1:9/v1: connection failed"), (
        lines
    )


def test_other_stages_refuse_to_run_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert joins_main_process(None)
    with pytest.raises(ParamsError, match=r"^stage merge runs in one process: `python -m tasks\.merge`$"):
        join_main_process("merge", None)


if __name__ == "__main__":
    listen()
    for word in sys.argv[1:]:
        out, _, step = word.partition("@")
        learn(Path(out).name, Path(out), int(step or -1))
