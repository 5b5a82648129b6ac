"""Two processes cut the frozen weights of a language model into shards (FSDP 2) where servers sample for it."""

import sys
from pathlib import Path

import pytest
import torch
from launching import history, launch
from letters import letters_setup
from lora_serving import Vllm, params, served
from safetensors.torch import load_file
from torch.distributed.tensor import DTensor

from harr.errors import ParamsError
from harr.io.files import read_json, write_json
from harr.train import agent
from harr.train.agent import check_processes, train


def learn(out: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Train the letters of the current folder; every process leaves its history, and how many weights are cut."""
    begun = []
    monkeypatch.setattr(agent, "begin", lambda *args, begin=agent.begin: begun.append(begin(*args)) or begun[0])
    section = params(url, episodes_per_pass=8, num_iterations=2, kl_weight=1e-3)
    rows = train(section, letters_setup(Path("letters")), out / "adapter", out / "work", lambda step, values: None, 0)
    rank = agent.distributed.number() if agent.distributed.count() > 1 else "alone"
    write_json(out / f"history-{rank}.json", rows)
    write_json(out / f"cut-{rank}.json", sum(isinstance(weight, DTensor) for weight in begun[0].parameters()))


@pytest.mark.services
def test_two_processes_with_shards_train_what_one_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    server = Vllm(letters_setup(Path("letters")).writer)
    with served(server) as url:
        learn(Path("one"), url, monkeypatch)
        done = launch(__file__, "two", url, config="fsdp")
    assert done.returncode == 0, done.stderr
    assert read_json(Path("one/cut-alone.json")) == 0 and read_json(Path("two/cut-1.json")) > 20
    rows, expected = history(Path("two"), "0"), history(Path("one"), "alone")
    assert rows == history(Path("two"), "1") and len(rows) == 2
    for row, wanted in zip(rows, expected, strict=True):
        assert row["reward_mean"] == wanted["reward_mean"] and row["own_tokens"] == wanted["own_tokens"]
        assert row["logprob_gap"] < 1e-3, "the servers have the newest LoRA"
        assert row["grad_norm"] == pytest.approx(wanted["grad_norm"], rel=1e-3)
    one, two = (load_file(Path(name, "adapter/adapter_model.safetensors")) for name in ("one", "two"))
    assert one.keys() == two.keys()
    assert torch.cat([(one[name] - two[name]).abs().flatten() for name in one]).mean() < 1e-5


def test_what_needs_a_whole_model_is_refused_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    check_processes(params("http://127.0.0.1:9"))
    for change in ({"validate_every": 1}, {"quantization": "nf4"}, {"vllm": "none"}):
        with pytest.raises(ParamsError, match=r"or FSDP with train\.vllm: adapter, validate_every: 0"):
            check_processes(params("http://127.0.0.1:9").model_copy(update=change))


if __name__ == "__main__":
    with pytest.MonkeyPatch.context() as patch:
        learn(Path(sys.argv[1]), sys.argv[2], patch)
