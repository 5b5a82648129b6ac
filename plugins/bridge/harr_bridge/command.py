"""The command `harr bridge`: its options. build.py, which does the work, is imported when the command runs."""

from pathlib import Path
from typing import Annotated

from typer import Option

from tasks.runtime.command import run_command

BRIDGED = Path("models/bridged")


def bridge(
    model: Annotated[str, Option(help="the new encoder of queries: a folder, or a name of the hub")],
    texts: Annotated[int, Option(min=100, metavar="N", help="at most so many passages, and so many questions")] = 1000,
    questions: Annotated[Path | None, Option(help="questions to tell recall by (default: the validation ones)")] = None,
    query_prompt: Annotated[str | None, Option(metavar="TEXT", help="before a query; default: the model's own")] = None,
    passage_prompt: Annotated[str | None, Option(metavar="TEXT", help="and before a passage")] = None,
    out: Annotated[Path, Option(help="folder of the bridged encoder, for retriever.encoder")] = BRIDGED,
) -> None:
    """Let another encoder read queries for this index.

    Learns a map from its vectors to those of encoder.model. Needs the output of stages download and embed.
    """
    from harr.params import Params
    from harr_bridge.build import bridge_encoder

    def body() -> None:
        given = {"query_prompt": query_prompt, "passage_prompt": passage_prompt}
        print(*bridge_encoder(Params.load(), model, texts, questions, out, **given), sep="\n")

    run_command(body)
