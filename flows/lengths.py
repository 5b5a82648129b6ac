"""A trained retriever in documents of every length: `harr lengths --lengths 100 1000 40000`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harr.params import Params
from tasks.lengths import ask_reader, play_lengths, stopping_tables


def play(file: Path, lengths: Sequence[int] | None, tokens: Sequence[int] | None, out: Path, **options: Any) -> None:
    """Play with the parameters of ``file`` and print the table; what is None is as its section `lengths` says.

    Args:
        file: the parameter file.
        lengths: of documents, in sentences.
        tokens: lengths of documents in tokens.
        out: the folder of the logs.
        options: ``model``, ``questions`` and ``seed`` of :func:`tasks.lengths.play_lengths`.
    """
    params = Params.load(file)
    section = params.lengths
    asked = {name: value for name, value in options.items() if value is not None}
    common = {"model": None, "questions": section.questions, "seed": section.seed, **asked}
    sentences = lengths or (() if tokens else section.sentences)
    show(play_lengths(params, sentences, tokens=tokens or (), out=out, **common))
    print(f"logs, lengths.json and lengths.svg are in {out}")


def answer(file: Path, logs: Sequence[Path], keep: str, limit: float) -> None:
    """Let the generator of ``file`` answer from the picks of these logs that a rule keeps, and print the table."""
    show(ask_reader(Params.load(file), logs, keep, limit))


def study_stopping(logs: Sequence[Path], thresholds: Sequence[float] | None, tune: Sequence[Path] | None) -> None:
    """Print what stopping by thresholds and after numbers of picks would give; ``tune`` chooses the threshold."""
    tables, separation = stopping_tables(logs, thresholds, tune)
    for rule, table in tables.items():
        print(f"{rule:>9}  length  fact EM [95 %]         fact F1 [95 %]         early  perfect   late    n")
        for row in table:
            spreads = ["{:.3f} [{:.3f}, {:.3f}]".format(*row[metric]) for metric in ("fact_em", "fact_f1")]
            shares = [f"{row[name]:.3f}" if name in row else "" for name in ("early", "perfect", "late")]
            line = f"{row['limit']:>9.2f}  {row['length']:>6.2f}  {spreads[0]}   {spreads[1]}  "
            print(f"{line}{shares[0]:>6} {shares[1]:>8} {shares[2]:>6} {row['n']:>4}")
    told = "no pick beyond the gold" if separation is None else f"{separation:.3f}"
    print(f"AUC of values, needed picks against others: {told}")


def show(table: Sequence[Mapping[str, Any]]) -> None:
    """Print one line per length and metric."""
    print("sentences  about tokens  metric     mean [95 %]             n")
    for row in table:
        spread = f"{row['mean']:.3f} [{row['low']:.3f}, {row['high']:.3f}]"
        tokens = f"{row['tokens']:,}" if "tokens" in row else ""
        print(f"{row['sentences']:>9,}  {tokens:>12}  {row['metric']:<10} {spread:<22} {row['n']:>4}")
