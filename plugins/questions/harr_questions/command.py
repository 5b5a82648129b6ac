"""The command `harr questions`: its options. write.py, which does the work, is imported when the command runs."""

from pathlib import Path
from typing import Annotated

from typer import Option

from tasks.runtime.command import run_command


def questions(
    hops: Annotated[
        list[int] | None, Option(min=1, max=2, metavar="N ...", help="passages that a question needs: 1, 2 or both")
    ] = None,
    out: Annotated[Path, Option(help="new folder of train.jsonl, validation.jsonl, test.jsonl, dropped.jsonl")] = Path(
        "questions"
    ),
) -> None:
    """Write questions about your documents by a language model.

    The model, that of section plugins.questions, also answers every question; those that leak, copy, repeat others or
    need no passage are dropped, each with its reason. A killed command resumes where it was.
    """
    from harr.params import Params
    from harr_questions.write import write_questions

    run_command(lambda: print(*write_questions(Params.load(), hops or (), out), sep="\n"))
