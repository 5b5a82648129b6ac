"""TRL's GRPO trainer without what has no effect on its update: padding, and episodes without advantage."""

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from trl.trainer.grpo_trainer import GRPOTrainer

from harr.compute import distributed
from harr.train.advantages import NEGLIGIBLE


class AgentTrainer(GRPOTrainer):
    """TRL's trainer, whose passes hold no more than what learns.

    It overrides nothing but ``compute_loss``, which transformers offers for that.
    """

    def compute_loss(
        self, model: Any, inputs: dict[str, torch.Tensor], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """Return TRL's loss of a pass.

        Episodes without advantage are left out where they would only be counted: of ``dapo``, whose loss is over the
        tokens of the whole step, without a KL term, and in one process, since several compare their passes row by row.
        """
        if self.loss_type == "dapo" and not self.beta and distributed.count() == 1:
            inputs = with_advantage(inputs)
        return super().compute_loss(model, trimmed(inputs), return_outputs, num_items_in_batch)


def with_advantage(inputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the episodes of a pass that have an advantage, one at least.

    ``inputs`` are TRL's: ``advantages``, (B,), tensors with a row for each of the B episodes, and single numbers.

    >>> advantages = torch.tensor([0.0, 0.5, 0.0, -0.5])
    >>> with_advantage({"advantages": advantages, "completion_ids": torch.tensor([[1], [2], [3], [4]])})
    {'advantages': tensor([ 0.5000, -0.5000]), 'completion_ids': tensor([[2],
            [4]])}
    """
    kept_B = inputs["advantages"].abs() >= NEGLIGIBLE
    kept_B[0] |= not kept_B.any()
    return {name: value[kept_B] if value.dim() else value for name, value in inputs.items()}


def trimmed(inputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return a pass without columns that are padding in all its rows; TRL pads to the longest episode of a step.

    Prompts are padded on the left, what follows them on the right.

    >>> mask = torch.tensor([[1, 1, 0], [1, 0, 0]])
    >>> pairs = {"prompt_mask": mask.flip(-1), "completion_mask": mask, "tool_mask": mask}
    >>> [value.shape[1] for value in trimmed(pairs).values()]
    [2, 2, 2]
    """
    first = int(inputs["prompt_mask"].sum(-1).max())
    end = max(1, int(inputs["completion_mask"].sum(-1).max()))

    def cut(name: str, value: torch.Tensor) -> torch.Tensor:
        if value.dim() < 2:
            return value
        return value[:, -first:] if name.startswith("prompt_") else value[:, :end]

    return {name: cut(name, value) for name, value in inputs.items()}


def skip_padding(model: Any) -> None:
    """Let positions begin at the first token of a text, as when it was sampled: TRL would count the padding before it.

    Where positions are learnt, as in GPT-2, texts would else be read at other positions, or past the last.
    """

    def numbered(module: Any, args: Any, kwargs: Any) -> Any:
        mask = kwargs.get("attention_mask")
        if mask is not None and mask.dim() == 2 and kwargs.get("position_ids") is None:
            kwargs["position_ids"] = (mask.cumsum(-1) - 1).clamp(min=0)
        return args, kwargs

    if model is not None and "position_ids" in inspect.signature(model.forward).parameters:
        model.register_forward_pre_hook(numbered, with_kwargs=True)
