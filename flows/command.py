"""How typer reads the options of `harr`."""

import os
import sys
from collections.abc import Container, Iterable
from itertools import pairwise
from typing import Any

import typer
from typer.main import get_command

from tasks.runtime.errors import errors_in_a_line

PLAIN: dict[str, Any] = {"rich_markup_mode": None, "pretty_exceptions_enable": False}


def call(app: typer.Typer, name: str, words: Iterable[str]) -> None:
    """Run an app as the command ``name``; exit with 2 for a wrong option."""
    if os.getcwd() not in sys.path:  # finds the project's own code, as `python -m` does
        sys.path.append(os.getcwd())
    arguments, commands = list(words), get_command(app)
    with errors_in_a_line():
        commands(args=repeat_options(arguments, lists(commands, *arguments[:1])), prog_name=name)


def lists(commands: Any, command: str = "") -> set[str]:
    """Return the options of a command, one of click's ``commands``, that take several values."""
    table: dict[str, Any] = getattr(commands, "commands", {})
    options = table[command].params if command in table else []
    return {name for option in options if getattr(option, "multiple", False) for name in option.opts}


def repeat_options(words: Iterable[str], lists: Container[str]) -> list[str]:
    """Return the words of a command line with an option's name before each of its values, as typer expects.

    >>> repeat_options(["--arms", "bm25", "trained", "--out", "mine.json"], {"--arms"})
    ['--arms', 'bm25', '--arms', 'trained', '--out', 'mine.json']
    """
    result, option = [], ""
    for before, word in pairwise(["", *words]):
        if word.startswith("-"):
            option = word
        elif option in lists and before != option:
            result.append(option)
        result.append(word)
    return result
