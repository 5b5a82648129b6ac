"""Functions of the user's own, named in params.yaml as ``package.module:function``."""

import importlib
from collections.abc import Callable
from typing import Any

from harr.errors import ParamsError


def function_of(name: str, *, key: str, shape: str) -> Callable[..., Any]:
    """The function that ``key`` of params.yaml names; ``shape`` says what it takes and returns.

    Raises:
        ParamsError: there is no such module, or no such function in it.

    >>> function_of("math:sqrt", key="reward.terms", shape="takes an Episode and returns a number")(4.0)
    2.0
    """
    module, _, function = name.partition(":")
    try:
        found: Callable[..., Any] = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise ParamsError(f"{key}: {name} cannot be imported ({error}); is its folder on PYTHONPATH?") from None
    if not callable(found):
        raise ParamsError(f"{key}: {name} is no function; give one that {shape}")
    return found
