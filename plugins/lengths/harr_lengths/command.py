"""The command `harr lengths`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from typer import BadParameter, Option

from harr_lengths.picks import Rule
from tasks.runtime.command import run_command

SENTENCES = (100, 1000, 10_000, 40_000)
"""Default lengths; 40,000 sentences of a book are about a million tokens."""


def length(text: str) -> int:
    """Return a positive number, with K for thousands or M for millions.

    >>> length("500"), length("40k"), length("10M")
    (500, 40000, 10000000)

    Raises:
        BadParameter: it is not one.
    """
    factor = {"K": 1000, "M": 1_000_000}.get(text[-1:].upper(), 1)
    digits = text[:-1] if factor > 1 else text
    if not digits.isdecimal() or int(digits) == 0:
        raise BadParameter(f"{text!r} is no length; expected a positive number such as 500, 40K or 10M")
    return int(digits) * factor


def lengths(
    lengths: Annotated[list[int] | None, Option(parser=length, metavar="N ...", help="sentences of a document")] = None,
    tokens: Annotated[list[int] | None, Option(parser=length, metavar="N ...", help="or about so many tokens")] = None,
    questions: Annotated[int, Option(min=0, help="stories; 0: as many as the test split")] = 0,
    seed: Annotated[int, Option(min=0, help="of stories and places; logs are named by it")] = 1,
    beam: Annotated[int, Option(min=1, metavar="N", help="plans of picks that are followed at a time")] = 1,
    model: Annotated[Path | None, Option(help="adapter or merged model (default: models/adapter)")] = None,
    params: Annotated[Path, Option(help="parameter file of the run")] = Path("params.yaml"),
    out: Annotated[Path, Option(help="folder of the logs; a log that is there is continued")] = Path("models/lengths"),
    answers: Annotated[list[Path] | None, Option(metavar="LOG ...", help="let the generator answer from these")] = None,
    keep: Annotated[Rule, Option(help="picks that it is shown (plugins/lengths/README.md)")] = "all",
    limit: Annotated[float, Option(help="threshold of --keep value, or number of --keep picks")] = 0.0,
) -> None:
    """Play test stories in documents of several lengths.

    For a trained retriever of train.method pqn. A length is such as 500, 40K or 1M. With --answers nothing is played:
    the generator of --params (pipeline.reader: true) answers from these logs.
    """
    from harr.params import Params
    from harr_lengths.logs import ask_reader, play_lengths

    def body() -> None:
        if answers:
            return show(ask_reader(Params.load(params), answers, keep, limit))
        sentences = lengths or (() if tokens else SENTENCES)
        table = play_lengths(
            Params.load(params),
            sentences,
            tokens=tokens or (),
            model=model,
            seed=seed,
            questions=questions,
            beam=beam,
            out=out,
        )
        show(table)
        print(f"logs, lengths.json and lengths.svg are in {out}")

    run_command(body)


def show(table: Sequence[Mapping[str, Any]]) -> None:
    """Print one line per length and metric."""
    print("sentences  about tokens  metric     mean [95 %]             n")
    for row in table:
        spread = f"{row['mean']:.3f} [{row['low']:.3f}, {row['high']:.3f}]"
        tokens = f"{row['tokens']:,}" if "tokens" in row else ""
        print(f"{row['sentences']:>9,}  {tokens:>12}  {row['metric']:<10} {spread:<22} {row['n']:>4}")
