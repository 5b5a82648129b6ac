"""What every command shares: its options are read by typer, it can be stopped, and it says an error in one line."""

import io
import os
import sys
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

import typer

from flows.runtime import signals
from flows.runtime.errors import told_in_a_line
from flows.runtime.launch import join_main_process, joins_main_process

PLAIN: dict[str, Any] = {"rich_markup_mode": None, "pretty_exceptions_enable": False}
KERNELS = {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "32", "LRU_CACHE_CAPACITY": "1"}
"""How many kernels oneDNN, and torch beside it, keep for the shapes that they met, in a stage. Their own 1,024 take
hundreds of MB in training, whose passes hardly ever have a shape twice (docs/performance.md). What the environment says
stays."""
LISTS = {"--answers", "--arms", "--hops", "--join", "--lengths", "--tokens"}
"""Options that take several values."""


def call(app: typer.Typer | Callable[..., Any], name: str, words: Iterable[str]) -> None:
    """Run an app, or a function with typer's options, as the command ``name``; exits with 2 for a wrong option."""
    if not isinstance(app, typer.Typer):
        function, app = app, typer.Typer(add_completion=False, **PLAIN)
        app.command()(function)
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


def main(stage: Any, *, checks: bool = False, join: Callable[[Any], Any] | None = None) -> None:
    """Be the command `python -m flows.<stage>` of a stage without options; see :func:`run_stage`."""

    def command() -> None:
        run_stage(stage, checks=checks, join=join)

    command.__doc__ = stage.__doc__
    call(command, f"python -m flows.{stage.name}", sys.argv[1:])


def run_stage(stage: Any, *, checks: bool = False, join: Callable[[Any], Any] | None = None) -> None:
    """Run a stage's flow and exit: 0, 1 for a ``HarrError``, 130 or 143 for a signal.

    Args:
        stage: the flow.
        checks: it checks data; Great Expectations is loaded meanwhile in a process of its own.
        join: its plain work, for the further processes of `accelerate launch`; None: it is for one process only.
    """
    from flows.runtime.stage import run_flow

    for name, kept in KERNELS.items():
        os.environ.setdefault(name, kept)
    if isinstance(sys.stdout, io.TextIOWrapper):  # in a log, lines stand in the order in which they were printed
        sys.stdout.reconfigure(line_buffering=True)

    def body() -> None:
        signals.follow_dvc()
        if joins_main_process(join):
            join_main_process(stage.name, join)
        else:
            run_flow(stage, checks=checks)

    run_command(body)


def run_command(body: Callable[[], Any]) -> None:
    """Call ``body`` so that a signal stops it between two units, and a user's mistake is one line, no traceback."""
    with signals.handled(), signals.ended_soon(), told_in_a_line():
        body()
