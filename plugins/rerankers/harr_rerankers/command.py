"""The command `harr train-reranker`."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from tasks.runtime.command import run_command


def train_reranker(
    folder: Annotated[Path, Argument(help="where the cross-encoder appears; then settings of the arm rerank name it")],
    model: Annotated[
        str, Option(help="cross-encoder, or encoder, that training begins with (default: encoder.model)")
    ] = "",
    epochs: Annotated[int, Option(min=1, help="passes over the training questions")] = 2,
    negatives: Annotated[int, Option(min=1, help="passages of the pool that each gold passage is shown against")] = 4,
    rate: Annotated[float, Option(min=1e-8, max=1.0, help="learning rate at its highest")] = 5e-5,
) -> None:
    """Train a cross-encoder on the training questions.

    It learns to tell their gold passages from others in the pool that retriever.search finds; the validation questions
    choose the epoch. Needs the output of the stages up to index.
    """
    from harr.params import Params
    from harr_rerankers.train import train

    run_command(lambda: print(train(Params.load(), folder, model, epochs, negatives, rate)))
