"""The plot of what is found by document length."""

from pathlib import Path

from matplotlib.figure import Figure

from harr.evaluate.tables import label
from harr.report.plots import BLUE, GREEN, Rows, draw_intervals, styled, write


def lengths_plot(rows: Rows, path: Path) -> None:
    """Plot metrics of :func:`harr_lengths.play.by_length` against document length, with 95 % intervals."""
    write(draw_lengths(rows), path, ["sentences", "metric", "mean", "low", "high", "n"], rows)


@styled
def draw_lengths(rows: Rows) -> Figure:
    """Draw the figure of :func:`lengths_plot`."""
    figure = Figure(figsize=(5.8, 3.3), layout="constrained")
    axes = figure.subplots()
    for metric, colour, marker in (("fact_em", GREEN, "D"), ("fact_f1", BLUE, "o")):
        metric_rows = [row for row in rows if row["metric"] == metric]
        lengths = [row["sentences"] for row in metric_rows]
        draw_intervals(axes, lengths, metric_rows, color=colour, marker=marker, capsize=3, label=label(metric))
    axes.set_xscale("log")
    axes.set_ylim(0, 102)
    axes.set_title(f"Facts found by length of the document (n = {min(row['n'] for row in rows):,} stories)")
    axes.set_xlabel("sentences")
    axes.set_ylabel("%")
    axes.legend(loc="lower left")
    return figure
