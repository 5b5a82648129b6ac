"""IPO by sums over tokens, worked by hand for queries of unequal length; pairs are counted one by one."""

from pathlib import Path

import pytest
import torch
from datasets import Dataset
from letters import logprobs, save_letters
from trl.trainer.dpo_config import DPOConfig

from harr.compute.trl import CHECKPOINTING, QUIET
from harr.rag.generation.adapter import begin
from harr.rag.generation.local_model import load_model
from harr.train.ipo import FIGURES, IPOTrainer

MARGIN = 10.0
ROWS = [
    {"prompt_ids": [5, 6, 7], "chosen_ids": [8, 9], "rejected_ids": [10, 11, 12, 13, 14, 15, 16]},
    {"prompt_ids": [5, 6], "chosen_ids": [17, 18, 19, 20, 21], "rejected_ids": [22]},
    {"prompt_ids": [7], "chosen_ids": [8], "rejected_ids": [9, 10, 11]},
]


@pytest.fixture
def trainer(tmp_path: Path) -> IPOTrainer:
    """A trainer whose model has moved away from its reference."""
    folder = str(save_letters(tmp_path / "model", spread=0.3, room=96, printable=True))
    (model, tokenizer), (reference, _) = load_model(folder), load_model(folder)
    torch.manual_seed(0)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.05 * torch.randn_like(weight))
    args = DPOConfig(
        output_dir=str(tmp_path / "work"), beta=0.5 / MARGIN, loss_type=["ipo"], per_device_train_batch_size=2,
        max_length=None, use_cpu=True, bf16=False, **QUIET, **{CHECKPOINTING: False},
    )  # fmt: skip
    return IPOTrainer(
        model=begin(model, None, 0), ref_model=reference.float(), args=args, processing_class=tokenizer,
        train_dataset=Dataset.from_list(ROWS),
    )  # fmt: skip


def worked(trainer: IPOTrainer) -> list[float]:
    """Return each row's gain of the better query over the worse, one sequence at a time."""

    def gain(row: dict[str, list[int]], name: str) -> float:
        now, then = (sum(logprobs(m, row["prompt_ids"], row[name])) for m in (trainer.model, trainer.ref_model))
        return now - then

    return [gain(row, "chosen_ids") - gain(row, "rejected_ids") for row in ROWS]


def test_the_loss_is_of_sums_over_the_tokens_also_of_queries_of_unequal_length(trainer: IPOTrainer) -> None:
    """TRL's own loss averages them, and so asks a query of seven tokens for seven times the margin."""
    trainer.model.eval()
    inputs = trainer._prepare_inputs(trainer.data_collator(ROWS))
    gains = worked(trainer)
    assert max(map(abs, gains)) > 0.05
    wanted = sum((gain - MARGIN) ** 2 for gain in gains) / 3
    loss = trainer._compute_loss(trainer.model, inputs, False).detach()
    assert float(loss) == pytest.approx(wanted, rel=1e-4)
    kept = {name: values[-1] for name, values in trainer._metrics["eval"].items()}
    assert kept.keys() == set(FIGURES) and kept["margin_nats"] == pytest.approx(sum(gains) / 3, abs=1e-4)
    assert kept["accuracy"] == pytest.approx(sum(gain > 0 for gain in gains) / 3)


def test_pairs_are_counted_one_by_one(trainer: IPOTrainer) -> None:
    """With batches of two and one, the mean of means would weigh the last pair twice."""
    assert trainer.rank_pairs(ROWS) == [gain > 0 for gain in worked(trainer)]
    assert trainer.rank_pairs([]) == []
