"""Trainings to compare with a run rewarded for answers: one uses the gold labels, one searches for answer strings.

``GOLD_REWARD`` trains as the run does, but is rewarded for the share of the gold passages found, so it shows what the
reader's mistakes cost. ``ANSWER_STRINGS`` is InfoNCE with the passages that state an answer as positives: DPR's rule
where no passage is marked (arXiv 2004.04906, section 4.1). Neither asks the reader.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

from harr.builders.methods import METHODS, Method
from harr.errors import ParamsError
from harr.params.train import ArmTrainParams, FunctionTrainParams
from harr.rag.scoring.reward import Reward
from harr.rag.setup import Setup
from harr.train import infonce
from harr.types import Log


def train_by_gold_reward(
    section: FunctionTrainParams, setup: Setup, out: Path, work: Path, log: Log, seed: int
) -> list[dict[str, Any]]:
    """Train the retriever like ``trained``, but rewarded for recall; arguments and result are those of a method."""
    run = _run_of(section)
    return METHODS[run.method].train(run, replace(setup, reward=Reward({"recall": 1.0})), out, work, log, seed)


def train_by_answer_strings(
    section: FunctionTrainParams, setup: Setup, out: Path, work: Path, log: Log, seed: int
) -> list[dict[str, Any]]:
    """Train the retriever by InfoNCE as if no question had gold; arguments and result are those of a method.

    Raises:
        CorpusError: no question has an answer that a passage could state.
    """
    unlabelled = [replace(question, gold_ids=()) for question in setup.questions]
    return infonce.train(_run_of(section), replace(setup, questions=unlabelled), out, work, log, seed)


def _run_of(section: FunctionTrainParams) -> Any:
    """Return section ``train`` of the run that the arm belongs to.

    Raises:
        ParamsError: the method trains the run itself.
    """
    if not isinstance(section, ArmTrainParams):
        raise ParamsError(f"{section.function} trains an arm; name it in evaluate.arms, not in train.function")
    return section.run


GOLD_REWARD = Method(train_by_gold_reward, rewarded=False)
ANSWER_STRINGS = Method(train_by_answer_strings, rewarded=False)
