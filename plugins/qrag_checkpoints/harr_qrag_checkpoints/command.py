"""The command `harr convert`: its options. convert.py, which does the work, is imported when the command runs."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from tasks.runtime.command import run_command


def convert(
    checkpoint: Annotated[Path, Argument(metavar="MODEL.pt", help="model_last.pt or model_best.pt of Q-RAG's code")],
    out: Annotated[Path, Argument(metavar="DIR", help="folder of the model, which appears whole")],
    params: Annotated[Path, Option(help="parameter file with its base, positions, order of picks and scale")] = Path(
        "params.yaml"
    ),
) -> None:
    """Make a model from a checkpoint of Q-RAG's own code.

    `harr lengths --model DIR` and `harr evaluate --model DIR` play it. recipes/qrag_*_published.yaml have the
    parameters that the published ones were trained with.
    """
    from harr.params import Params
    from harr_qrag_checkpoints.convert import convert_checkpoint

    run_command(lambda: print(convert_checkpoint(Params.load(params), checkpoint, out)))
