"""LeReT's IPO on TRL's trainer: log-probabilities are summed over a query's tokens, not averaged.

TRL averages them, which requires a margin of 10 nats of every token and not of the query; for queries of unequal
length no beta makes the two equal. With h = [log p(chosen) - log p_ref(chosen)] - [the same for the rejected query],
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
"""Token ids of a prompt, of the preferred query, and of the other one."""
FIGURES = ("accuracy", "margin_nats", "logprob_chosen", "logprob_rejected")
"""Figures that the trainer logs besides loss and grad_norm; accuracy is over pairs."""


class IPOTrainer(DPOTrainer):
    """TRL's trainer on tokenized pairs, with the loss on summed log-probabilities; beta is 1 / (2 x margin)."""

    model: Any

    def _prepare_dataset(self, dataset: Dataset, *_: Any) -> Dataset:
        return dataset

    def _compute_loss(self, model: Any, inputs: Mapping[str, Tensor], return_outputs: bool) -> Tensor:
        (chosen_B, rejected_B), gains_B = self._compare(model, inputs)
        figures = ((gains_B > 0).float(), gains_B, chosen_B, rejected_B)
        metrics = self._metrics["train" if self.model.training else "eval"]
        means = [self.accelerator.gather(values_B.detach()).mean() for values_B in figures]
        for name, mean in zip(FIGURES, torch.stack(means).tolist(), strict=True):
            metrics[name].append(mean)
        return ipo_loss(gains_B, 0.5 / self.beta)

    @torch.no_grad()
    def rank_pairs(self, pairs: Sequence[Pair]) -> list[bool]:
        """Return for every pair whether the model raised the better query's log-probability more than the other's."""
        size, right = self.args.per_device_train_batch_size, []
        self.model.eval()
        for start in range(0, len(pairs), size):
            inputs = self._prepare_inputs(self.data_collator(list(pairs[start : start + size])))
            right += (self._compare(self.model, inputs)[1] > 0).tolist()
        return right

    def _compare(self, model: Any, inputs: Mapping[str, Tensor]) -> tuple[tuple[Tensor, Tensor], Tensor]:
        """Return log-probabilities of the better and worse queries (B each), and the better ones' excess gain (B)."""
        chosen_B, rejected_B = _sum_logprobs(model, inputs).chunk(2)
        checkpoint_options: Any = self.args.gradient_checkpointing_kwargs
        with torch.no_grad(), disable_gradient_checkpointing(self.model, checkpoint_options):
            if self.ref_model is None:
                policy_model = self.accelerator.unwrap_model(self.model)
                with use_adapter(policy_model, adapter_name="ref" if "ref" in policy_model.peft_config else None):
                    before_B, worse_before_B = _sum_logprobs(self.model, inputs).chunk(2)
            else:
                before_B, worse_before_B = _sum_logprobs(self.ref_model, inputs).chunk(2)
        return (chosen_B, rejected_B), (chosen_B - before_B) - (rejected_B - worse_before_B)


def ipo_loss(gains_B: Tensor, margin: float) -> Tensor:
    """Return the mean over pairs of (gain - margin)^2, in nats.

    >>> float(ipo_loss(torch.tensor([10.0, 4.0]), margin=10.0))
    18.0
    """
    return ((gains_B - margin) ** 2).mean()


def _sum_logprobs(model: Any, inputs: Mapping[str, Tensor]) -> Tensor:
    """Return the log-probability of every completion, in nats, better queries first (2 B)."""
    mask_BT = inputs["completion_mask"]
    arguments = {name: values for name, values in inputs.items() if name != "completion_mask"}
    labels_BT = arguments["input_ids"].masked_fill(mask_BT == 0, -100)
    logprobs: Tensor = model(**arguments, use_cache=False, labels=labels_BT, fused_lm_head=True).log_probs
    return logprobs[:, -(mask_BT.shape[1] - 1) :].sum(dim=1)
