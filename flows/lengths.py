"""A trained retriever in documents of every length: `python -m flows.lengths --lengths 100 1000 40000`."""

import argparse
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flows.runtime.command import run_command
from harr.params import Params
from tasks.lengths import ask_reader, play_lengths
from tasks.paths import LENGTHS


def run(options: argparse.Namespace) -> None:
    """Play and print the table."""
    params = Params.load(options.params)
    section = params.lengths
    table = play_lengths(
        params,
        options.lengths or (() if options.tokens else section.sentences),
        tokens=options.tokens,
        model=options.model,
        seed=section.seed if options.seed is None else options.seed,
        questions=options.questions or section.questions,
        out=options.out,
    )
    show(table)
    print(f"logs, lengths.json and lengths.svg are in {options.out}")


def show(table: Sequence[Mapping[str, Any]]) -> None:
    """One line per length and metric."""
    print("sentences  about tokens  metric     mean [95 %]             n")
    for row in table:
        spread = f"{row['mean']:.3f} [{row['low']:.3f}, {row['high']:.3f}]"
        tokens = f"{row['tokens']:,}" if "tokens" in row else ""
        print(f"{row['sentences']:>9,}  {tokens:>12}  {row['metric']:<10} {spread:<22} {row['n']:>4}")


def count(text: str) -> int:
    """A positive number, with K for thousands or M for millions.

    >>> count("500"), count("40k"), count("10M")
    (500, 40000, 10000000)

    Raises:
        ArgumentTypeError: it is none.
    """
    found = re.fullmatch(r"([1-9]\d*)([KM]?)", text.upper())
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} is no length; expected a positive number such as 500, 40K or 10M")
    return int(found[1]) * {"": 1, "K": 1000, "M": 1_000_000}[found[2]]


def seed(text: str) -> int:
    """A number from 0 on.

    Raises:
        ArgumentTypeError: it is none.
    """
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no seed; expected 0, 1, 2, ...")
    return int(text)


def command() -> None:
    """Options come first, then the section `lengths` of the parameter file, then the run's own sections."""
    parser = argparse.ArgumentParser(
        prog="python -m flows.lengths",
        description="Play the test stories of a trained retriever (train.method pqn) in documents of several lengths. "
        "An option goes before the section `lengths` of the parameter file, and that before the run's own sections.",
    )
    parser.add_argument("--lengths", type=count, nargs="+", help="documents of so many sentences each (500, 40K)")
    parser.add_argument(
        "--tokens", type=count, nargs="+", default=[], help="documents of about so many tokens each (1K, 1M, 10M)"
    )
    parser.add_argument("--questions", type=count, default=0, help="so many stories (default: as the run's test split)")
    parser.add_argument("--seed", type=seed, help="of stories and places; logs are named by it")
    parser.add_argument("--model", type=Path, help="adapter or merged model (default: models/adapter)")
    parser.add_argument("--params", type=Path, default=Path("params.yaml"), help="parameter file of the run")
    parser.add_argument(
        "--out", type=Path, default=LENGTHS, help="folder of the logs; a log that is there is continued"
    )
    parser.add_argument(
        "--answers",
        type=Path,
        nargs="+",
        metavar="LOG",
        help="play nothing; let the generator of --params answer from these logs (with pipeline.reader: true)",
    )
    options = parser.parse_args()
    if options.answers:
        run_command(lambda: show(ask_reader(Params.load(options.params), options.answers)))
    else:
        run_command(lambda: run(options))


if __name__ == "__main__":
    command()
