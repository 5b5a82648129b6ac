"""Words of the rules in ``harr/params/rules*.py``: which methods, pipelines and kinds a fact holds of."""

from collections.abc import Sequence
from typing import Any, get_args

from harr.params.train import TrainParams

LANGUAGE_MODEL = "language_model"


def either(names: Sequence[str]) -> str:
    """Name several things as a sentence does.

    >>> either(["base"]), either(["base", "sft", "trained"])
    ('base', 'base, sft or trained')
    """
    return " or ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def methods(**facts: object) -> str:
    """Name the methods of which some facts hold.

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
