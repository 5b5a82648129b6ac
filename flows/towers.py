"""Commands of `harr` for a retriever of two towers (train.method pqn); :mod:`flows.cli` adds them to its own."""

from pathlib import Path
from typing import Annotated, Literal

from typer import Argument, BadParameter, Option

from tasks.paths import LENGTHS
from tasks.runtime.command import run_command

Keep = Literal["all", "value", "picks", "early_stop", "gold"]
"""The rules of harr/evaluate/stopping.py."""


def length(text: str) -> int:
    """Return a positive number, with K for thousands or M for millions.

    >>> length("500"), length("40k"), length("10M")
    (500, 40000, 10000000)

    Raises:
        BadParameter: it is none.
    """
    factor = {"K": 1000, "M": 1_000_000}.get(text[-1:].upper(), 1)
    digits = text[:-1] if factor > 1 else text
    if not digits.isdecimal() or int(digits) == 0:
        raise BadParameter(f"{text!r} is no length; expected a positive number such as 500, 40K or 10M")
    return int(digits) * factor


def lengths(
    lengths: Annotated[list[int] | None, Option(parser=length, metavar="N ...", help="sentences of a document")] = None,
    tokens: Annotated[list[int] | None, Option(parser=length, metavar="N ...", help="or about so many tokens")] = None,
    questions: Annotated[int | None, Option(parser=length, help="stories (default: as the test split)")] = None,
    seed: Annotated[int | None, Option(min=0, help="of stories and places; logs are named by it")] = None,
    model: Annotated[Path | None, Option(help="adapter or merged model (default: models/adapter)")] = None,
    params: Annotated[Path, Option(help="parameter file of the run")] = Path("params.yaml"),
    out: Annotated[Path, Option(help="folder of the logs; a log that is there is continued")] = LENGTHS,
    answers: Annotated[list[Path] | None, Option(metavar="LOG ...", help="let the generator answer from these")] = None,
    keep: Annotated[Keep, Option(help="picks that it is shown: `harr stopping` tells what each rule keeps")] = "all",
    limit: Annotated[float, Option(help="threshold of --keep value, or number of --keep picks")] = 0.0,
) -> None:
    """Play test stories in documents of several lengths.

    For a trained retriever of train.method pqn. A length is such as 500, 40K or 1M. An option goes before the section
    `lengths` of the parameter file, and that before the run's own sections. With --answers nothing is played: the
    generator of --params (pipeline.reader: true) answers from these logs.
    """
    from flows import lengths as played

    if answers:
        run_command(lambda: played.answer(params, answers, keep, limit))
    else:
        run_command(lambda: played.play(params, lengths, tokens, out, questions=questions, seed=seed, model=model))


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
    and late, and how well values tell needed picks from others (AUC). With --tune the threshold of the best fact F1 on
    those logs is the only one.
    """
    from flows import lengths as played

    run_command(lambda: played.study_stopping(logs, thresholds, tune))


COMMANDS = (lengths, stopping)
