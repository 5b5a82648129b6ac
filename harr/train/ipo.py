"""IPO as LeReT has it, on TRL's trainer: log-probabilities are summed over a query's tokens, not averaged.

TRL averages them, so that a margin of 10 nats is asked of every token and not of the query; for queries of unequal
length no beta makes the two equal. With h = [log p(chosen) - log p_ref(chosen)] - [the same of the rejected query],
each a sum over tokens, the loss is the mean of (h - 1 / (2 beta))^2 over pairs (IPO, arXiv 2310.12036, equation 17;
LeReT, arXiv 2410.23214), and 1 / (2 beta) is the margin in nats.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from datasets import Dataset
from torch import Tensor
from trl.models.utils import disable_gradient_checkpointing
from trl.trainer.dpo_trainer import DPOTrainer
from trl.trainer.utils import use_adapter

Pair = dict[str, list[int]]
"""Token ids of a prompt, of the query to prefer, and of the other."""
FIGURES = ("accuracy", "margin_nats", "logprob_chosen", "logprob_rejected")
"""Figures that the trainer logs beside loss and grad_norm; accuracy is of pairs."""


class IPOTrainer(DPOTrainer):
    """TRL's trainer on pairs that are tokens already, with the loss of sums; beta is 1 / (2 x margin)."""

    model: Any

    def _prepare_dataset(self, dataset: Dataset, *_: Any) -> Dataset:
        return dataset

    def _compute_loss(self, model: Any, inputs: Mapping[str, Tensor], return_outputs: bool) -> Tensor:
        (chosen_B, rejected_B), gains_B = self._compared(model, inputs)
        told = ((gains_B > 0).float(), gains_B, chosen_B, rejected_B)
        kept = self._metrics["train" if self.model.training else "eval"]
        for name, values_B in zip(FIGURES, told, strict=True):
            kept[name].append(self.accelerator.gather(values_B.detach()).mean().item())
        return ipo_loss(gains_B, 0.5 / self.beta)

    @torch.no_grad()
    def in_order(self, pairs: Sequence[Pair]) -> list[bool]:
        """Return of every pair whether the model has raised the better query more than the worse one."""
        size, right = self.args.per_device_train_batch_size, []
        self.model.eval()
        for start in range(0, len(pairs), size):
            inputs = self._prepare_inputs(self.data_collator(list(pairs[start : start + size])))
            right += (self._compared(self.model, inputs)[1] > 0).tolist()
        return right

    def _compared(self, model: Any, inputs: Mapping[str, Tensor]) -> tuple[tuple[Tensor, Tensor], Tensor]:
        """Return log-probabilities of better and worse queries (B each), and by how much more the better gained (B)."""
        chosen_B, rejected_B = _sums(model, inputs).chunk(2)
        how: Any = self.args.gradient_checkpointing_kwargs
        with torch.no_grad(), disable_gradient_checkpointing(self.model, how):
            if self.ref_model is None:
                own = self.accelerator.unwrap_model(self.model)
                with use_adapter(own, adapter_name="ref" if "ref" in own.peft_config else None):
                    before_B, worse_before_B = _sums(self.model, inputs).chunk(2)
            else:
                before_B, worse_before_B = _sums(self.ref_model, inputs).chunk(2)
        return (chosen_B, rejected_B), (chosen_B - before_B) - (rejected_B - worse_before_B)


def ipo_loss(gains_B: Tensor, margin: float) -> Tensor:
    """Return the mean over pairs of (gain - margin)^2, in nats.

    >>> float(ipo_loss(torch.tensor([10.0, 4.0]), margin=10.0))
    18.0
    """
    return ((gains_B - margin) ** 2).mean()


def _sums(model: Any, inputs: Mapping[str, Tensor]) -> Tensor:
    """Return the log-probability of every completion, in nats, better queries first (2 B)."""
    own_BT = inputs["completion_mask"]
    read = {name: values for name, values in inputs.items() if name != "completion_mask"}
    labels_BT = read["input_ids"].masked_fill(own_BT == 0, -100)
    found: Tensor = model(**read, use_cache=False, labels=labels_BT, fused_lm_head=True).log_probs
    return found[:, -(own_BT.shape[1] - 1) :].sum(dim=1)
