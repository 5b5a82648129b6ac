"""Packages of extras: what only some uses need is imported when it is needed, and a missing one is named with its
extra."""

from importlib import import_module
from types import ModuleType

from harr.errors import MissingExtra, one_line


def optional(module: str, extra: str) -> ModuleType:
    """Return a module that an extra of harr brings.

    Raises:
        MissingExtra: it is not installed.

    >>> optional("json", "pipeline").dumps([1])
    '[1]'
    >>> optional("no_such_package.part", "pipeline")
    Traceback (most recent call last):
        ...
    harr.errors.MissingExtra: package no_such_package is not installed; run `pip install 'harr[pipeline]'`
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        state = f"package {error.name or module} is not installed"
    except ImportError as error:  # a package that says so in words of its own
        state = f"package {module} cannot be imported ({one_line(error, 200)})"
    raise MissingExtra(f"{state}; run `pip install 'harr[{extra}]'`")
