"""The command `harr replay`: its options. judge.py, which does the work, is imported when the command runs."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from tasks.runtime.command import run_command


def replay(
    log: Annotated[Path, Argument(metavar="LOG", help="folder that harr_traffic.recorder:Recorder wrote")],
    model: Annotated[
        str, Option(help="models:/NAME@ALIAS, or a folder of stage merge (default: what the shadow ranked)")
    ] = "",
    index: Annotated[Path, Option(metavar="DIR", help="the project whose data/ was searched")] = Path(),
    out: Annotated[Path | None, Option(metavar="FILE", help="json file for the figures")] = None,
) -> None:
    """Judge a model by logged searches, without serving it."""
    from harr_traffic.judge import replay_log

    run_command(lambda: print(*replay_log(log, model, index, out), sep="\n"))
