"""A trained retriever in documents of every length: `harr lengths --lengths 100 1000 40000`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harr.evaluate.picks import Rule
from harr.params import Params
from tasks.lengths import ask_reader, play_lengths

SENTENCES = (100, 1000, 10_000, 40_000)
"""Default lengths; 40,000 sentences of a book are about a million tokens."""


def play(file: Path, lengths: Sequence[int] | None, tokens: Sequence[int] | None, out: Path, **options: Any) -> None:
    """Play with the parameters of ``file`` and print the table.

    Args:
        file: the parameter file.
        lengths: of documents, in sentences.
        tokens: lengths of documents in tokens.
        out: the folder of the logs.
        options: ``model``, ``questions``, ``seed`` and ``beam`` of :func:`tasks.lengths.play_lengths`.
    """
    sentences = lengths or (() if tokens else SENTENCES)
    show(play_lengths(Params.load(file), sentences, tokens=tokens or (), out=out, **options))
    print(f"logs, lengths.json and lengths.svg are in {out}")


def answer(file: Path, logs: Sequence[Path], keep: Rule, limit: float) -> None:
    """Let the generator of ``file`` answer from the picks of these logs that a rule keeps, and print the table."""
    show(ask_reader(Params.load(file), logs, keep, limit))


def show(table: Sequence[Mapping[str, Any]]) -> None:
    """Print one line per length and metric."""
    print("sentences  about tokens  metric     mean [95 %]             n")
    for row in table:
        spread = f"{row['mean']:.3f} [{row['low']:.3f}, {row['high']:.3f}]"
        tokens = f"{row['tokens']:,}" if "tokens" in row else ""
        print(f"{row['sentences']:>9,}  {tokens:>12}  {row['metric']:<10} {spread:<22} {row['n']:>4}")
