"""A trained retriever in documents of every length: `harr lengths --lengths 100 1000 40000`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harr.params import Params
from tasks.lengths import ask_reader, play_lengths


def play(
    file: Path,
    lengths: Sequence[int] | None,
    tokens: Sequence[int] | None,
    *,
    questions: int | None,
    seed: int | None,
    model: Path | None,
    out: Path,
) -> None:
    """Play with the parameters of ``file`` and print the table; what is None is as its section `lengths` says."""
    params = Params.load(file)
    section = params.lengths
    table = play_lengths(
        params,
        lengths or (() if tokens else section.sentences),
        tokens=tokens or (),
        model=model,
        seed=section.seed if seed is None else seed,
        questions=questions or section.questions,
        out=out,
    )
    show(table)
    print(f"logs, lengths.json and lengths.svg are in {out}")


def answer(file: Path, logs: Sequence[Path]) -> None:
    """Let the generator of ``file`` answer from the picks of these logs, and print the table."""
    show(ask_reader(Params.load(file), logs))


def show(table: Sequence[Mapping[str, Any]]) -> None:
    """Print one line per length and metric."""
    print("sentences  about tokens  metric     mean [95 %]             n")
    for row in table:
        spread = f"{row['mean']:.3f} [{row['low']:.3f}, {row['high']:.3f}]"
        tokens = f"{row['tokens']:,}" if "tokens" in row else ""
        print(f"{row['sentences']:>9,}  {tokens:>12}  {row['metric']:<10} {spread:<22} {row['n']:>4}")
