"""Code of other packages, named in params.yaml as ``package.module:name``.

Reward terms, sources, arms, pipelines, data sets and methods can be named so. Anyone who can write params.yaml can run
anything importable, with the rights of the stage: run only recipes of people you trust.
"""

import difflib
import importlib
import inspect
import sys
from collections.abc import Callable, Mapping
from importlib.metadata import metadata
from typing import Any

from harr.errors import ParamsError, one_line


def import_named(name: str, *, key: str) -> Any:
    """Import what ``key`` of params.yaml names.

    Raises:
        ParamsError: there is no such module, nothing of that name in it, or importing it fails.

    >>> import_named("harr_none.of:such", key="evaluate.arms")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    harr.errors.ParamsError: evaluate.arms: harr_none.of:such cannot be imported (...); is its folder on PYTHONPATH?
    """
    module, _, attribute = name.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except Exception as error:  # the module may raise anything
        lost = isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}.")
        extra = module.partition(".")[0].removeprefix("harr_")
        ours = extra.replace("_", "-") in (metadata("harr").get_all("Provides-Extra") or ())
        install = f"it is a plug-in: pip install 'harr[{extra}]' (in a clone: make .venv/dev)"
        missing = install if ours else "is its folder on PYTHONPATH?"
        near = difflib.get_close_matches(attribute, dir(sys.modules.get(module)), n=1)
        hint = f"did you mean {module}:{near[0]}?" if near else f"try `python -c 'from {module} import {attribute}'`"
        mend = missing if lost else hint
        what = f"{type(error).__name__}: {one_line(error)}"
        raise ParamsError(f"{key}: {name} cannot be imported ({what}); {mend}") from None


def function_of(
    name: str, *, key: str, shape: str, takes: int = 1, settings: Mapping[str, Any] | None = None
) -> Callable[..., Any]:
    """Import the function that ``key`` of params.yaml names.

    Args:
        name: ``package.module:function``.
        key: the parameter that names it.
        shape: what it takes and returns, for the message.
        takes: number of its positional arguments.
        settings: its keyword arguments.

    Raises:
        ParamsError: there is no such module, or no such function in it, or it takes other arguments.

    >>> function_of("math:sqrt", key="reward.terms", shape="takes an Episode and returns a number")(4.0)
    2.0
    """
    function: Callable[..., Any] = import_named(name, key=key)
    if not callable(function):
        raise ParamsError(f"{key}: {name} is no function; give one that {shape}")
    try:
        inspect.signature(function).bind(*[None] * takes, **(settings or {}))
    except ValueError:  # a C function may have no signature
        pass
    except TypeError as error:
        raise ParamsError(f"{key}: {name} cannot be called so ({error}); give one that {shape}") from None
    return function
