"""TRL's GRPO trainer, which skips padding and episodes without advantage: neither affects the update.

It also logs ``capped_share``, the share of tokens whose importance ratio is at its maximum.
"""

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from trl.trainer.grpo_trainer import GRPOTrainer

from harr.compute import distributed
from harr.train.advantages import NEGLIGIBLE
from harr.train.vllm import CAP


class AgentTrainer(GRPOTrainer):
    """TRL's trainer, whose passes have only the episodes with a gradient.

    It overrides only ``compute_loss`` and ``log``, which transformers provides for that.
    """

    _capped = torch.zeros(2)
    """Number of tokens since the last log whose ratio is at its maximum, and of all that the model wrote."""

    def compute_loss(
        self, model: Any, inputs: dict[str, torch.Tensor], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """Return TRL's loss for a pass.

        Episodes without advantage are left out where they cannot matter: for ``dapo``, whose loss is over the tokens of
        the whole step, without a KL term, and in one process, since several compare their passes row by row.
        """
        if "importance_sampling_ratio" in inputs:
            own = inputs["completion_mask"] * inputs["tool_mask"]
            capped = own * (inputs["importance_sampling_ratio"] >= CAP)
            self._capped = self._capped.to(own.device) + torch.stack([capped.sum(), own.sum()])
        if self.loss_type == "dapo" and not self.beta and distributed.count() == 1:
            inputs = select_with_advantage(inputs)
        return super().compute_loss(model, trim_padding(inputs), return_outputs, num_items_in_batch)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Log an update's figures, and the share of tokens whose importance ratio is at its maximum."""
        capped, own = distributed.sum_processes(self._capped).tolist()
        if own:
            logs["capped_share"] = capped / own
        self._capped = torch.zeros(2)
        super().log(logs, start_time)


def select_with_advantage(inputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the episodes of a pass that have an advantage, or one episode if none has.

    ``inputs`` are TRL's: ``advantages``, (B,), tensors with a row for each of the B episodes, and single numbers.

    >>> advantages = torch.tensor([0.0, 0.5, 0.0, -0.5])
    >>> select_with_advantage({"advantages": advantages, "completion_ids": torch.tensor([[1], [2], [3], [4]])})
    {'advantages': tensor([ 0.5000, -0.5000]), 'completion_ids': tensor([[2],
            [4]])}
    """
    kept_B = inputs["advantages"].abs() >= NEGLIGIBLE
    kept_B[0] |= not kept_B.any()
    rows = kept_B.nonzero().squeeze(-1)  # once: every mask waits for the GPU
    return {name: value[rows] if value.dim() else value for name, value in inputs.items()}


def trim_padding(inputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return a pass without columns that are padding in all its rows; TRL pads to a step's longest episode.

    Prompts are padded on the left, completions on the right.

    >>> mask = torch.tensor([[1, 1, 0], [1, 0, 0]])
    >>> pairs = {"prompt_mask": mask.flip(-1), "completion_mask": mask, "tool_mask": mask}
    >>> [value.shape[1] for value in trim_padding(pairs).values()]
    [2, 2, 2]
    """
    lengths = torch.stack([inputs[name].sum(-1).max() for name in ("prompt_mask", "completion_mask")])
    first, end = lengths.clamp(min=1).tolist()

    def cut(name: str, value: torch.Tensor) -> torch.Tensor:
        if value.dim() < 2:
            return value
        return value[:, -first:] if name.startswith("prompt_") else value[:, :end]

    return {name: cut(name, value) for name, value in inputs.items()}


def skip_padding(model: Any) -> None:
    """Start positions at a text's first token, as in sampling: TRL would count the padding before it.

    With learnt positions, as in GPT-2, texts would otherwise be read at other positions, or past the last one.
    """

    def add_position_ids(module: Any, args: Any, kwargs: Any) -> Any:
        mask = kwargs.get("attention_mask")
        if mask is not None and mask.dim() == 2 and kwargs.get("position_ids") is None:
            kwargs["position_ids"] = (mask.cumsum(-1) - 1).clamp(min=0)
        return args, kwargs

    if model is not None and "position_ids" in inspect.signature(model.forward).parameters:
        model.register_forward_pre_hook(add_position_ids, with_kwargs=True)
