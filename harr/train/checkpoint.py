"""Checkpoints of a training run: adapter, optimiser and history, in safetensors and json.

Random numbers need no saving: every step seeds its own generator from (seed, step).
"""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel, get_peft_model_state_dict, set_peft_model_state_dict
from safetensors.torch import load_file, save_file

from harr.files import publish, read_json, write_json


@dataclass(frozen=True)
class Checkpoints:
    """The latest checkpoint of one run, kept under ``folder``.

    ``save`` replaces the previous one only after the new one is whole; ``load`` restores it exactly.
    """

    folder: Path

    def save(
        self, step: int, model: PeftModel, optimizer: torch.optim.Optimizer, history: list[dict[str, Any]]
    ) -> None:
        """Write the state after ``step`` finished steps."""
        draft = self.folder / "checkpoint.draft"
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        save_file(
            {k: v.contiguous() for k, v in get_peft_model_state_dict(model).items()}, draft / "adapter.safetensors"
        )
        save_file(_optimizer_tensors(optimizer), draft / "optimizer.safetensors")
        write_json(draft / "state.json", {"step": step, "history": history})
        publish(draft, self.folder / f"checkpoint-{step:06d}")
        for old in self._whole()[:-1]:
            shutil.rmtree(old)

    def load(self, model: PeftModel, optimizer: torch.optim.Optimizer) -> tuple[int, list[dict[str, Any]]]:
        """Restore the latest checkpoint; (0, []) where there is none."""
        whole = self._whole()
        if not whole:
            return 0, []
        set_peft_model_state_dict(model, load_file(whole[-1] / "adapter.safetensors"))
        _restore_optimizer(optimizer, load_file(whole[-1] / "optimizer.safetensors"))
        state = read_json(whole[-1] / "state.json")
        return state["step"], state["history"]

    def _whole(self) -> list[Path]:
        return sorted(path for path in self.folder.glob("checkpoint-*") if (path / "state.json").exists())


def _optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    state = optimizer.state_dict()["state"]
    return {f"{index}.{name}": value.contiguous() for index, slots in state.items() for name, value in slots.items()}


def _restore_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, torch.Tensor]) -> None:
    state: dict[int, dict[str, torch.Tensor]] = {}
    for key, value in tensors.items():
        index, name = key.split(".", 1)
        state.setdefault(int(index), {})[name] = value
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
