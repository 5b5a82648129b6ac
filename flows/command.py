"""How the options of `harr` are read, by typer."""

import os
import sys
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import typer

from tasks.runtime.errors import told_in_a_line

PLAIN: dict[str, Any] = {"rich_markup_mode": None, "pretty_exceptions_enable": False}
LISTS = {"--answers", "--arms", "--hops", "--lengths", "--tokens"}
"""Options that take several values."""


def call(app: typer.Typer, name: str, words: Iterable[str]) -> None:
    """Run an app as the command ``name``; exits with 2 for a wrong option."""
    if os.getcwd() not in sys.path:  # code of the project's own, as `python -m` finds it
        sys.path.append(os.getcwd())
    with told_in_a_line():
        app(args=repeated(words), prog_name=name)


def repeated(words: Iterable[str]) -> list[str]:
    """Return the words of a command line with the name of an option before each of its values, as typer wants it.

    >>> repeated(["--arms", "bm25", "full", "--out", "mine.json"])
    ['--arms', 'bm25', '--arms', 'full', '--out', 'mine.json']
    """
    found, option = [], ""
    for before, word in pairwise(["", *words]):
        if word.startswith("-"):
            option = word
        elif option in LISTS and before != option:
            found.append(option)
        found.append(word)
    return found
