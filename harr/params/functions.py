"""What other packages bring, named in params.yaml as ``package.module:name``.

Reward terms, sources, arms, pipelines, data sets and methods are named so. It is code: whoever can write params.yaml
can run anything that is importable, with the rights of the stage. Run recipes of people you trust only.
"""

import importlib
from collections.abc import Callable
from typing import Any

from harr.errors import ParamsError


def import_named(name: str, *, key: str) -> Any:
    """Import what ``key`` of params.yaml names.

    Raises:
        ParamsError: there is no such module, or nothing of that name in it.
    """
    module, _, attribute = name.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ParamsError(f"{key}: {name} cannot be imported ({error}); is its folder on PYTHONPATH?") from None


def function_of(name: str, *, key: str, shape: str) -> Callable[..., Any]:
    """Import the function that ``key`` of params.yaml names; ``shape`` says what it takes and returns.

    Raises:
        ParamsError: there is no such module, or no such function in it.

    >>> function_of("math:sqrt", key="reward.terms", shape="takes an Episode and returns a number")(4.0)
    2.0
    """
    found: Callable[..., Any] = import_named(name, key=key)
    if not callable(found):
        raise ParamsError(f"{key}: {name} is no function; give one that {shape}")
    return found
