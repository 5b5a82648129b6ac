"""Optional packages: imported only when needed; the error for a missing one names its extra."""

from importlib import import_module
from types import ModuleType

from harr.errors import MissingExtra, one_line


def optional(module: str, extra: str) -> ModuleType:
    """Return a module that an extra of harr installs.

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
    except ImportError as error:  # a package with its own message
        state = f"package {module} cannot be imported ({one_line(error, 200)})"
    raise MissingExtra(f"{state}; run `pip install 'harr[{extra}]'`")
