"""The command `harr mteb`: its options. search.py, which does the work, is imported when the command runs."""

from pathlib import Path
from typing import Annotated

from typer import Option

from harr.errors import ModelError
from tasks.paths import RETRIEVER
from tasks.runtime.command import run_command


def mteb(
    tasks: Annotated[list[str], Option(metavar="TASK ...", help="folders in BEIR's layout, or names that mteb knows")],
    model: Annotated[str, Option(help="what stage merge wrote, or an encoder")] = str(RETRIEVER),
    out: Annotated[Path, Option(metavar="DIR", help="mteb's results, as its own tools read them")] = Path(
        "mteb_results"
    ),
) -> None:
    """Evaluate a retriever on tasks of mteb.

    Reads no project; tasks in folders need no network.
    """
    from harr_mteb.search import run_tasks

    if model == str(RETRIEVER) and not RETRIEVER.exists():
        raise ModelError(f"{model} is no folder; run `dvc repro`, or name --model")
    run_command(lambda: print(*(f"{name}: {100 * score:.2f}" for name, score in run_tasks(model, tasks, out).items())))
