"""The training methods: one record each, which all stages read.

Another package's method is such a record, too: ``train: {method: function, function: "mine.train:METHOD"}``.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from harr.errors import ParamsError
from harr.filter import filter_questions
from harr.params import Params
from harr.params.faults import read_section
from harr.params.fields import Section, is_dotted
from harr.params.filter import FilterParams
from harr.params.functions import import_named
from harr.params.train import ArmTrainParams, FunctionTrainParams, TrainParams
from harr.preferences.collect import collect_preferences
from harr.rag.setup import Setup
from harr.train import grpo, infonce, ppo, pqn
from harr.types import Log, Question

Train = Callable[[Any, Setup, Path, Path, Log, int], list[dict[str, Any]]]
"""``train(params, setup, out, work, log, seed)``: train the learning player and write its adapter to ``out``.

``params`` is section ``train``. Unfinished work is kept in ``work``; ``log(step, values)`` is called after every step.
Returns a row of figures per step, with ``step``, ``reward_mean``, ``zero_std_share`` and ``seconds``.
"""
Prepare = Callable[[FilterParams, Setup, Path, Path, Log, int], dict[str, float]]
"""``prepare(params, setup, out, work, log, seed)``: write to ``out`` what to learn from; returns counts.

``params`` is section ``filter``. ``out/questions.jsonl`` has the training questions, ``out/statistics.jsonl`` a
row per tried question (:func:`harr.filter.filter_questions`).
"""


def describe_steps(params: Any) -> dict[str, str]:
    """Describe training on rollouts in steps, for the model card and the report."""
    return {
        "method": getattr(params, "function", params.method),
        **({"warm start": f"{warm} steps"} if (warm := getattr(params, "warm_start", 0)) else {}),
        "steps": f"{params.steps}, each {params.questions_per_step} questions x {params.group_size} rollouts",
        "learning rate": f"{params.optimizer.learning_rate:g}",
    }


@dataclass(frozen=True, slots=True)
class Method:
    """A training method, and what the other stages must know about it.

    Args:
        train: trains. prepare: what stage filter does for it.
        describe: returns facts of section ``train`` for the model card and the report, ``method`` first.
        figure: the meaning of ``reward_mean`` in its rows. ``accuracy`` is that of predicting tokens in even phases,
            pairs in odd ones (``phase`` of a row).
        rewarded: whether it learns from the run's rewards; if not, no reader is asked about picked passages.
        check: refuses questions that the method could not learn from, before any is played.
        settings: the class that validates its ``settings`` in params.yaml before anything is played.
    """

    train: Train
    prepare: Prepare = filter_questions
    describe: Callable[[Any], dict[str, str]] = describe_steps
    figure: Literal["reward", "accuracy"] = "reward"
    rewarded: bool = True
    check: Callable[[Sequence[Question]], None] | None = None
    settings: type[Section] | None = None


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
    "grpo": Method(grpo.train),
    "ppo": Method(ppo.train),
    "pqn": Method(pqn.train),
    "infonce": Method(infonce.train, rewarded=False, check=infonce.check_labels),
    "agent": Method(_train_agent, describe=_describe_agent),
    "leret": Method(_train_leret, collect_preferences, _describe_leret, figure="accuracy"),
}


def method_of(section: TrainParams) -> Method:
    """Return the method named by section ``train``.

    Raises:
        ParamsError: another package's method cannot be imported, is neither a record nor a function, or takes
            other settings.
    """
    return _import_method(section, "train") if isinstance(section, FunctionTrainParams) else METHODS[section.method]


def arm_method(params: Params, name: str) -> tuple[Method, TrainParams]:
    """Return the method that trains an arm, and section ``train`` as that method reads it.

    Raises:
        ParamsError: as :func:`method_of`.
    """
    section, arm = params.train, params.evaluate.arm_table[name]
    if not is_dotted(arm.method):
        return METHODS[arm.method] if arm.method else method_of(section), section
    arm_section = ArmTrainParams.of(section, arm.method, arm.settings)
    return _import_method(arm_section, f"evaluate.arms {name}"), arm_section


def _import_method(section: FunctionTrainParams, place: str) -> Method:
    """Return another package's method, named at ``place`` in params.yaml."""
    key = f"{place}.{'method' if isinstance(section, ArmTrainParams) else 'function'}"
    value = import_named(section.function, key=key)
    if not (isinstance(value, Method) or callable(value)):
        raise ParamsError(
            f"{key}: {section.function} is {type(value).__name__}; give a Method (harr/builders/methods.py), "
            "or its function train(params, setup, out, work, log, seed)"
        )
    method = value if isinstance(value, Method) else Method(value)
    if method.settings:
        read_section(method.settings, section.settings, f"{place}.settings")
    return method
