"""The command `harr stopping`: its options. study.py, which does the work, is imported when the command runs."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from tasks.runtime.command import run_command


def stopping(
    logs: Annotated[list[Path], Argument(metavar="LOG ...", help="logs of `harr lengths`")],
    thresholds: Annotated[
        list[float] | None, Option(metavar="Q ...", help="values below which picking stops (default: -.1 to 1.1)")
    ] = None,
    tune: Annotated[
        list[Path] | None, Option(metavar="LOG ...", help="logs of other stories, on which the threshold is chosen")
    ] = None,
) -> None:
    """Say what stopping by a threshold on Q would give.

    Prints length, fact EM and F1 by threshold and by number of picks, the shares of stories that stop early, perfectly
    and late, and how well values separate needed picks from others (AUC). With --tune the only threshold is the one
    with the best fact F1 on those logs.
    """
    from harr_stopping.study import stopping_lines

    run_command(lambda: print(*stopping_lines(logs, thresholds, tune), sep="\n"))
