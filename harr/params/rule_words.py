"""Words for the rules in ``harr/params/rules*.py``: the methods, pipelines and kinds for which a fact holds."""

from collections.abc import Sequence
from typing import Any, get_args

from harr.params.train import TrainParams

LANGUAGE_MODEL = "language_model"


def either(names: Sequence[str]) -> str:
    """Return several names as one phrase.

    >>> either(["base"]), either(["base", "sft", "trained"])
    ('base', 'base, sft or trained')
    """
    return " or ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def methods(**facts: object) -> str:
    """Return the names of the methods for which some facts hold.

    >>> methods(positions=True), methods(learns="language_model")
    ('pqn', 'agent or leret')
    """
    kinds = [kind for kind in members(TrainParams) if not kind.foreign]
    matching = [kind for kind in kinds if all(getattr(kind, fact) == value for fact, value in facts.items())]
    return either([tag(kind, "method") for kind in matching])


def members(union: object) -> tuple[Any, ...]:
    """Return the section classes of a union."""
    return get_args(get_args(union)[0])


def tag(section: type[object], field: str) -> str:
    return str(get_args(section.__annotations__[field])[0])
