"""Parameters of trainings that take seconds."""

from harr.params.loop import OptimizerParams
from harr.params.train import InfoNCEParams
from harr.params.train_facts import LoraParams

TWO_STEPS = {
    "steps": 2,
    "questions_per_step": 6,
    "group_size": 4,
    "optimizer": OptimizerParams(learning_rate=1e-3),
    "checkpoints": {"every": 1},
    "lora": LoraParams(rank=4, alpha=8),
    "infonce": InfoNCEParams(),
}
