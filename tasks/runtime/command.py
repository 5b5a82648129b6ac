"""What every command shares: it can be stopped, and reports an error in one line."""

from collections.abc import Callable
from typing import Any

from tasks.runtime import signals
from tasks.runtime.errors import errors_in_a_line


def run_command(body: Callable[[], Any]) -> None:
    """Call ``body`` so that a signal stops it between two units, and a user's mistake prints one line, no traceback."""
    with signals.handle_signals(), signals.end_soon(), errors_in_a_line():
        body()
