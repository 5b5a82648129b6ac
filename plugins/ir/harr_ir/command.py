"""The command `harr trec`."""

from pathlib import Path
from typing import Annotated

from typer import Argument

from tasks.runtime.command import run_command


def trec(folder: Annotated[Path, Argument(help="where qrels.txt and a run file per arm are written")]) -> None:
    """Write TREC run files of the last evaluation.

    One run per arm, and the judgements as qrels.txt.
    """
    from harr_ir.trec import write_runs
    from tasks.paths import EVALUATION, QUESTIONS

    run_command(lambda: print(*write_runs(folder, EVALUATION, QUESTIONS / "test.jsonl"), sep="\n"))
