"""The methods of training: one record each, which all stages read.

A method of another package is such a record, too: ``train: {method: function, function: "mine.train:METHOD"}``.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from harr.errors import ParamsError
from harr.filter import filter_questions
from harr.params.filter import FilterParams
from harr.params.functions import import_named
from harr.params.train import FunctionTrainParams, TrainParams
from harr.preferences.collect import collect_preferences
from harr.rag.setup import Setup
from harr.train import infonce, logged, lrat, ppo, pqn, replug
from harr.types import Log, Question

Train = Callable[[Any, Setup, Path, Path, Log, int], list[dict[str, Any]]]
"""``train(params, setup, out, work, log, seed)``: train the player that learns, and write its adapter to ``out``.

``params`` is section ``train``. Unfinished work is kept in ``work``; ``log(step, values)`` is called after every step.
Returns a row of figures per step, with ``step``, ``reward_mean``, ``zero_std_share`` and ``seconds``.
"""
Prepare = Callable[[FilterParams, Setup, Path, Path, Log, int], dict[str, float]]
"""``prepare(params, setup, out, work, log, seed)``: write to ``out`` what there is to learn from; returns counts.

``params`` is section ``filter``. ``out/questions.jsonl`` are the questions of training, ``out/statistics.jsonl`` has a
row per question that was tried (:func:`harr.filter.filter_questions`).
"""


def describe_steps(params: Any) -> dict[str, str]:
    """Describe a training of rollouts in steps, for the model card and the report."""
    return {
        "method": getattr(params, "function", params.method),
        **({"warm start": f"{warm} steps"} if (warm := getattr(params, "warm_start", 0)) else {}),
        "steps": f"{params.steps}, each {params.questions_per_step} questions x {params.group_size} rollouts",
        "learning rate": f"{params.learning_rate:g}",
    }


@dataclass(frozen=True, slots=True)
class Method:
    """A way to train, and what the other stages must know of it.

    Args:
        train: trains. prepare: what stage filter does for it.
        describe: section ``train`` as facts for the model card and the report; ``method`` is the first.
        figure: what its rows tell as ``reward_mean``. ``accuracy`` is of predictions: of tokens in even, of pairs in
            odd phases (``phase`` of a row).
        check: refuses questions that the method could not learn from, before any is played.
    """

    train: Train
    prepare: Prepare = filter_questions
    describe: Callable[[Any], dict[str, str]] = describe_steps
    figure: Literal["reward", "accuracy"] = "reward"
    check: Callable[[Sequence[Question]], None] | None = None


def _train_agent(*args: Any) -> list[dict[str, Any]]:
    from harr.train.agent import train  # TRL takes seconds to import, and only this method needs it

    return train(*args)


def _train_leret(*args: Any) -> list[dict[str, Any]]:
    from harr.train.leret import train  # likewise

    return train(*args)


def _describe_agent(params: Any) -> dict[str, str]:
    return describe_steps(params) | {"method": f"{params.method} (GRPO by TRL, loss {params.loss})"}


def _describe_leret(params: Any) -> dict[str, str]:
    return {
        "method": f"{params.method} (SFT, then IPO, by TRL)",
        "iterations": str(params.iterations),
        "epochs": f"SFT {params.sft_epochs} of batch {params.sft_batch}, IPO {params.ipo_epochs} of {params.ipo_batch}",
        "learning rate": f"SFT {params.sft_learning_rate:g}, IPO {params.ipo_learning_rate:g}",
        "target margin": f"{params.ipo_target_margin_nats:g} nats",
    }


METHODS = {
    "grpo": Method(logged.train),
    "ppo": Method(ppo.train),
    "pqn": Method(pqn.train),
    "infonce": Method(infonce.train, check=infonce.check_labels),
    "replug": Method(replug.train),
    "lrat": Method(lrat.train),
    "agent": Method(_train_agent, describe=_describe_agent),
    "leret": Method(_train_leret, collect_preferences, _describe_leret, figure="accuracy"),
}


def method_of(section: TrainParams) -> Method:
    """Return the method that section ``train`` names.

    Raises:
        ParamsError: the method of another package cannot be imported, or is neither a record nor a function.
    """
    if not isinstance(section, FunctionTrainParams):
        return METHODS[section.method]
    found = import_named(section.function, key="train.function")
    if not (isinstance(found, Method) or callable(found)):
        raise ParamsError(
            f"train.function: {section.function} is {type(found).__name__}; give a Method (harr/builders/methods.py), "
            "or its function train(params, setup, out, work, log, seed)"
        )
    return found if isinstance(found, Method) else Method(found)
