"""A warm start by TRL: it learns only from the model's own tokens, resumes bit for bit, and gives a whole model."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from letters import nothing, save_letters
from peft import PeftModel
from runs import go_on, same, timeless, weights

from harr.compute import trl
from harr.errors import CorpusError
from harr.generator.warmstart import train_warmstart
from harr.io import progress
from harr.io.files import finish, read_json
from harr.params.generator import LocalParams
from harr.params.train_facts import LoraParams
from harr.rag.generation.adapter import base_identity
from harr.rag.generation.local_model import LocalGenerator, load_model
from harr.types import Generate

LETTERS = "qwer"
ROWS: list[Any] = [
    {"pieces": [[letter, False], ["abcs", True], [result, False], ["aaat", True]]}
    for letter in LETTERS
    for result in ("xyz", "zxy")
]


def settings(tmp_path: Path, rows: list[Any] = ROWS, **changes: Any) -> LocalParams:
    """Return settings with the letters model and a file of demonstrations, learnt in seconds."""
    (tmp_path / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    if not (tmp_path / "letters").exists():
        save_letters(tmp_path / "letters", spread=0.5)
    given = {"steps": 40, "rows_per_step": 4, "rows_per_pass": 2, "learning_rate": 3e-2, "lora": None}
    warmstart = {"demonstrations": str(tmp_path / "rows.jsonl"), **given, **changes}
    return LocalParams.model_validate(
        {"kind": "local", "model": str(tmp_path / "letters"), "max_tokens": 8, "warmstart": warmstart}
    )


def says(folder: Path | str, prompt: str) -> str:
    """Return the model's continuation of a prompt."""
    generator = LocalGenerator(str(folder), temperature=0.0, max_tokens=4, batch_size=1, seed=0)
    return generator.complete([Generate(prompt=prompt)])[0]


@pytest.mark.parametrize("lora", [None, LoraParams(rank=8, alpha=64)], ids=["trained", "lora"])
def test_the_model_learns_to_say_what_was_shown(tmp_path: Path, lora: LoraParams | None) -> None:
    params = settings(tmp_path, lora=lora)
    logged: list[Any] = []
    base = base_identity(params.model)
    found = train_warmstart(params, tmp_path / "out", tmp_path / "work", lambda step, row: logged.append(row), 0)
    assert found["loss_last"] < 0.3 < 2.0 < found["loss_first"] and found["accuracy_last"] > 0.9
    assert len(logged) == found["steps"] == 40 and set(logged[0]) == {"loss", "accuracy"}
    assert (found["demonstrations"], found["too_long"], found["tokens"], found["own_tokens"]) == (8, 0, 8 * 12, 8 * 8)
    assert says(tmp_path / "out", "q") == "abcs" != says(params.model, "q")
    assert says(tmp_path / "out", "qabcsxyz") == "aaat"
    model, _ = load_model(str(tmp_path / "out"))
    assert not isinstance(model, PeftModel) and not any("lora" in name for name, _ in model.named_parameters())
    assert read_json(tmp_path / "out/harr.json") == {"base_model": params.model, "base": base, "kind": "language_model"}
    assert not any(path.suffix in {".bin", ".pt", ".pth"} for path in tmp_path.rglob("*"))
    finish(tmp_path / "work")
    assert not any((tmp_path / "work").iterdir()) and base_identity(params.model) == base


def test_what_the_environment_said_has_no_loss(tmp_path: Path) -> None:
    params = settings(tmp_path, rows=ROWS[:2], steps=1, rows_per_step=2)
    losses: list[Any] = []
    train_warmstart(params, tmp_path / "out", tmp_path / "work", lambda step, row: losses.append(row["loss"]), 0)
    model, tokenizer = load_model(params.model)
    texts = ["".join(text for text, _ in row["pieces"]) for row in ROWS[:2]]
    ids_BT = torch.tensor(tokenizer(texts)["input_ids"])
    own_T = torch.tensor([learnt for text, learnt in ROWS[0]["pieces"] for _ in text])[1:]
    logprob_BT = model(ids_BT).logits.detach()[:, :-1].log_softmax(-1).gather(-1, ids_BT[:, 1:, None])[..., 0]
    wanted, whole = -logprob_BT[:, own_T].mean(), -logprob_BT.mean()
    assert losses == [pytest.approx(float(wanted), abs=1e-3)] and abs(float(whole - wanted)) > 0.01


def test_a_killed_run_ends_with_the_same_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trl, "SAVE_EVERY", 3)
    params = settings(tmp_path, steps=10, lora=LoraParams(rank=4, alpha=8))

    def run(name: str, log: Any) -> dict[str, float]:
        assert not (tmp_path / name).exists() and progress._Stop.loops == 0
        return train_warmstart(params, tmp_path / name, tmp_path / f"w-{name}", log, 0)

    whole, again = run("whole", nothing), list[int]()
    parts = go_on(lambda log: run("parts", log), 7, then=lambda step, row: again.append(step))
    assert again == [6, 7, 8, 9]
    assert timeless([whole]) == timeless([parts])
    assert same(weights(tmp_path / "whole"), weights(tmp_path / "parts"))


def test_long_demonstrations_are_left_out_and_steps_follow_from_epochs(tmp_path: Path, capsys: Any) -> None:
    rows = [*ROWS, {"pieces": [["q", False], ["a" * 30, True]]}]
    params = settings(tmp_path, rows=rows, steps=0, epochs=3, max_length=20)
    found = train_warmstart(params, tmp_path / "out", tmp_path / "work", nothing, 0)
    assert (found["demonstrations"], found["too_long"], found["steps"]) == (8, 1, 3 * 8 / 4)
    assert "1 of 9 demonstrations are longer than 20 tokens" in capsys.readouterr().out
    with pytest.raises(CorpusError, match=r"all 9 .* are longer than 8 tokens; raise generator\.warmstart\.max_length"):
        train_warmstart(settings(tmp_path, rows=rows, max_length=8), tmp_path / "out", tmp_path / "work", nothing, 0)
