"""Plot every reward term during training: its mean, and its spread over episodes.

Each function writes an SVG and a CSV as ``harr.report.plots`` does. ``rows`` are the dicts that training returns:
one per step with ``step``, ``phase``, ``episodes``, means by name and ``quantiles`` (``harr/train/record.py``).
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from harr.report.plots import BLUE, GREEN, GREY, INK, ORANGE, smooth, styled, write

Rows = Sequence[Mapping[str, Any]]
Array = NDArray[np.float64]
TOTAL = "total"
QUANTILES = ("min", "p10", "p25", "p50", "p75", "p90", "max")
BINS = 40
"""Maximum number of steps drawn one by one; with more, neighbours are averaged."""


def reward_progress(rows: Rows, path: Path) -> None:
    """Plot the mean of the total and of every term, per step and smoothed; the CSV has a row per step and term."""
    columns = ["step", "phase", "term", "mean", "std", "smoothed"]
    write(draw_reward_progress(rows), path, columns, _progress_rows(rows))


def reward_distribution(rows: Rows, path: Path) -> None:
    """Plot the quantiles of the total and of every term over a step's episodes; the CSV has a row per step and term."""
    spread = [
        {"step": row["step"], "term": name, **dict(zip(QUANTILES, values, strict=True))}
        for row in rows
        for name, values in row.get("quantiles", {}).items()
    ]
    write(draw_reward_distribution(rows), path, ["step", "term", *QUANTILES], spread)


@styled
def draw_reward_progress(rows: Rows) -> Figure:
    """Draw the plot of :func:`reward_progress`: one panel for the total and one per term."""
    names = terms(rows)
    figure, panels = _panels(f"Reward while training, by term ({_size(rows)})", names, rows)
    for name, panel in zip(names, panels, strict=True):
        steps, means, smoothed = curve(rows, name)
        size = 2.5 if len(steps) <= BINS else 0
        panel.plot(steps, means, color=GREY, linewidth=0.8, marker="o", markersize=size, label="mean of each step")
        if window(rows) > 1:
            panel.plot(steps, smoothed, color=GREEN, linewidth=2.4, label=f"mean over {window(rows)} steps")
    _legend(figure, panels)
    return figure


@styled
def draw_reward_distribution(rows: Rows) -> Figure:
    """Draw the plot of :func:`reward_distribution`: quantile bands with the mean."""
    names = terms(rows)
    size = -(-len(rows) // BINS)
    title = f"Spread of the reward over episodes, by term ({_size(rows)})"
    figure, panels = _panels(title, names, rows)
    for name, panel in zip(names, panels, strict=True):
        term_rows = [row for row in rows if name in row.get("quantiles", {})]
        if not term_rows:
            continue
        parts = [term_rows[first : first + size] for first in range(0, len(term_rows), size)]
        steps = [np.mean([row["step"] for row in part]) for part in parts]
        bands = np.array([np.mean([row["quantiles"][name] for row in part], axis=0) for part in parts]).T
        means = [np.mean([row[mean_column(name)] for row in part]) for part in parts]
        panel.fill_between(steps, bands[0], bands[6], color=GREY, alpha=0.14, linewidth=0, label="all episodes")
        panel.fill_between(steps, bands[1], bands[5], color=BLUE, alpha=0.22, linewidth=0, label="10 to 90 %")
        panel.fill_between(steps, bands[2], bands[4], color=BLUE, alpha=0.40, linewidth=0, label="25 to 75 %")
        panel.plot(steps, bands[3], color=BLUE, linewidth=1.6, label="median")
        panel.plot(steps, means, color=ORANGE, linewidth=1.6, linestyle=(0, (4, 1.5)), label="mean")
    _legend(figure, panels)
    return figure


def terms(rows: Rows) -> list[str]:
    """Return the names of the total and of every term in any step."""
    return list(dict.fromkeys([TOTAL, *(name for row in rows for name in row.get("quantiles", {}))]))


def mean_column(name: str) -> str:
    """Return the name of the figure with the mean of a term or of the total."""
    return "reward_mean" if name == TOTAL else f"reward_{name}_mean"


def curve(rows: Rows, name: str) -> tuple[Array, Array, Array]:
    """Return the steps that have a term, its means, and the means smoothed within each phase."""
    term_rows = [row for row in rows if mean_column(name) in row]
    means = np.array([row[mean_column(name)] for row in term_rows], dtype=float)
    phases = np.array([row.get("phase", 0.0) for row in term_rows])
    cuts = np.flatnonzero(np.diff(phases)) + 1
    smoothed = np.concatenate([smooth(part, window(rows)) for part in np.split(means, cuts)])
    return np.array([row["step"] for row in term_rows], dtype=float), means, smoothed


def window(rows: Rows) -> int:
    """Return the number of steps that the smoothed line averages: about a tenth of all, at most 51.

    >>> window([{}] * 20), window([{}] * 500), window([{}] * 5000)
    (3, 51, 51)
    """
    return 2 * min(25, len(rows) // 20) + 1


def boundaries(rows: Rows) -> list[float]:
    """Return the places between steps at which a new phase begins.

    >>> boundaries([{"step": 0, "phase": 0.0}, {"step": 1, "phase": 1.0}, {"step": 2, "phase": 1.0}])
    [0.5]
    """
    pairs = pairwise(rows)
    return [(a["step"] + b["step"]) / 2 for a, b in pairs if a.get("phase", 0.0) != b.get("phase", 0.0)]


def _progress_rows(rows: Rows) -> Iterator[dict[str, Any]]:
    by_step = {row["step"]: row for row in rows}
    for name in terms(rows):
        steps, means, smoothed = curve(rows, name)
        for place, step in enumerate(steps.astype(int).tolist()):
            row = by_step[step]
            yield {
                "step": step,
                "phase": row.get("phase", 0.0),
                "term": name,
                "mean": float(means[place]),
                "std": row.get(f"reward_{name}_std") if name != TOTAL else None,
                "smoothed": float(smoothed[place]),
            }


def _size(rows: Rows) -> str:
    episodes = int(max((row.get("episodes", 0) for row in rows), default=0))
    return f"n = {len(rows):,} steps" + (f" of {episodes:,} episodes" if episodes else "")


def _panels(title: str, names: Sequence[str], rows: Rows) -> tuple[Figure, list[Axes]]:
    """Return a figure with a named panel for each term, at most three per row, and the phases marked."""
    across = min(3, max(2, len(names)))
    down = -(-len(names) // across)
    figure = Figure(figsize=(9.6, 0.9 + 2.35 * down), layout="constrained")
    grid = figure.subplots(down, across, sharex=True, squeeze=False).flatten().tolist()
    for spare in grid[len(names) :]:
        spare.set_axis_off()
    for name, panel in zip(names, grid, strict=False):
        panel.set_ylabel(name, color=INK)
        panel.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=5))
        panel.yaxis.set_major_locator(MaxNLocator(nbins=5))
        panel.tick_params(labelbottom=True)
        panel.set_xlabel("step")
        for number, place in enumerate(boundaries(rows)):
            label = {} if number else {"label": "new phase"}
            panel.axvline(place, color=INK, linewidth=0.9, linestyle=(0, (2, 2)), **label)
    figure.suptitle(title, x=0.0, ha="left", fontsize=10.5, fontweight="bold")
    return figure, grid[: len(names)]


def _legend(figure: Figure, panels: Sequence[Axes]) -> None:
    """Draw one legend for all panels, below them."""
    handles = {
        label: handle for panel in panels for handle, label in zip(*panel.get_legend_handles_labels(), strict=True)
    }
    figure.legend(handles.values(), handles.keys(), loc="outside lower left", ncols=len(handles), fontsize=9)
