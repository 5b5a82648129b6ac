"""Checkpoints of a training run: trained weights, heads, optimizer, loss scale and history, in safetensors and JSON.

Random states need no saving: every step seeds its own generator from (seed, step).
"""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from harr.compute.tensors import load_tensors, optimizer_tensors, restore_optimizer, trained_weights
from harr.io.files import check_sums, draft, newest_sound, read_json, write_json

HEADS = "heads.safetensors"
"""File of the trained heads, such as a value head or the link term."""


@dataclass(frozen=True)
class Checkpoints:
    """The latest and the best checkpoint of one run, kept under ``folder``.

    ``save`` replaces an older one only once the new one is complete; ``load`` restores it exactly. ``scaler`` has
    float16's loss scale.
    """

    folder: Path
    scaler: torch.amp.GradScaler | None = None

    def save(
        self,
        step: int,
        model: torch.nn.Module,
        head: torch.nn.Module | None,
        optimizers: Sequence[torch.optim.Optimizer],
        history: list[dict[str, Any]],
        *,
        best: int,
    ) -> None:
        """Write the state after ``step`` finished steps, and delete older checkpoints except ``best``."""
        with draft(self.folder / "checkpoint.draft", self._path(step)) as folder:
            weights = {path: weight.detach().contiguous() for path, weight in trained_weights(model).items()}
            save_file(weights, folder / "weights.safetensors")
            if head is not None:
                save_file(head.state_dict(), folder / HEADS)
            for number, optimizer in enumerate(optimizers):
                save_file(optimizer_tensors(optimizer), folder / f"optimizer{number or ''}.safetensors")
            scale = {"scaler": self.scaler.state_dict()} if self.scaler else {}
            write_json(folder / "state.json", {"step": step, "history": history, **scale})
        for old in self._whole()[:-1]:
            if old != self._path(best):
                shutil.rmtree(old)

    def steps(self) -> list[int]:
        """Return the steps of all checkpoints."""
        return [int(path.name.rpartition("-")[2]) for path in self._whole()]

    def history(self) -> list[dict[str, Any]]:
        """Return the history of the latest intact checkpoint; [] without any."""
        return self._history(newest_sound(self._whole()))

    @staticmethod
    def _history(folder: Path | None) -> list[dict[str, Any]]:
        return read_json(folder / "state.json")["history"] if folder else []

    def load(
        self, model: torch.nn.Module, head: torch.nn.Module | None, optimizers: Sequence[torch.optim.Optimizer]
    ) -> list[dict[str, Any]]:
        """Restore the latest intact checkpoint and return its history; [] without any."""
        folder = newest_sound(self._whole())
        if folder is None:
            return []
        self.load_weights(model, folder)
        if head is not None:
            head.load_state_dict(load_file(folder / HEADS))
        for number, optimizer in enumerate(optimizers):
            restore_optimizer(optimizer, load_file(folder / f"optimizer{number or ''}.safetensors"))
        if self.scaler:
            self.scaler.load_state_dict(read_json(folder / "state.json")["scaler"])
        return self._history(folder)

    def load_best(self, model: torch.nn.Module, head: torch.nn.Module | None, best: int) -> None:
        """Restore weights and head from the checkpoint after ``best`` steps.

        Raises:
            DamagedFile: one of its files has changed.
        """
        check_sums(self._path(best), f"rm -r {self.folder}` and `dvc repro -f -s train")
        self.load_weights(model, self._path(best))
        if head is not None:
            head.load_state_dict(load_file(self._path(best) / HEADS))

    @staticmethod
    def load_weights(model: torch.nn.Module, folder: Path) -> None:
        """Restore the trained weights from one checkpoint."""
        load_tensors(trained_weights(model), load_file(folder / "weights.safetensors"), folder)

    def _path(self, step: int) -> Path:
        return self.folder / f"checkpoint-{step:06d}"

    def _whole(self) -> list[Path]:
        return sorted(path for path in self.folder.glob("checkpoint-*") if (path / "state.json").exists())
