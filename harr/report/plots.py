"""Three plots in one style. Each function writes an SVG and, next to it, the CSV that ``dvc plots`` shows.

The SVG bytes depend only on the rows. Text stays text, and colours have names, so that
``harr.report.page`` can replace them with its page's.
"""

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from harr.arms import ARMS
from harr.evaluate.summary import headlines
from harr.evaluate.tables import label
from harr.io.files import write_text
from harr.rag.validation import AFTER, leading_metric, points

Rows = Sequence[Mapping[str, Any]]

INK, MUTED, GRID = "#1c2530", "#5d6875", "#dfe3e8"
BLUE, ORANGE, GREEN, GREY = "#0072b2", "#d98200", "#00875f", "#8a929b"
PURPLE, SKY = "#b5578f", "#3f9bd1"
OLIVE, TEAL, BROWN, SLATE = "#7a6a00", "#0b7a75", "#8c4a2f", "#4a5a78"
EXTRA = ("#c2541b", "#6b4fa0", "#0f6f6f")
COLOURS = {"ink": INK, "muted": MUTED, "grid": GRID, "blue": BLUE, "orange": ORANGE, "green": GREEN, "grey": GREY}
"""Darkened Okabe-Ito colours by name: distinguishable with any colour vision; arms also differ in their marker."""
OF_ARMS = COLOURS | {"purple": PURPLE, "sky": SKY, "olive": OLIVE, "teal": TEAL, "brown": BROWN, "slate": SLATE}
"""The colours named in ``harr/arms.py``."""

STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "harr",
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": MUTED,
    "axes.titlecolor": INK,
    "text.color": INK,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "grid.color": GRID,
    "legend.frameon": False,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
}
styled = matplotlib.rc_context(STYLE)
"""A decorator for functions that draw in this style."""


def learning_curve(rows: Rows, path: Path, signal: str = "reward") -> None:
    """Plot the reward per training step, raw and smoothed, above the share of groups that taught nothing.

    ``rows`` are the dicts that training returns: one per step with ``step``, ``reward_mean`` and
    ``zero_std_share``; all figures go into the CSV, those of validation questions as ``validation.<name>`` in the
    step's row. If the ``signal`` is accuracy, there were no rollouts, and ``loss`` is plotted below instead.
    """
    plain = [{name: value for name, value in row.items() if not isinstance(value, Mapping)} for row in rows]
    validation = [{f"{AFTER}.{name}": value for name, value in row.get(AFTER, {}).items()} for row in rows]
    table = [row | more for row, more in zip(plain, validation, strict=True)]
    columns = list(dict.fromkeys(key for row in table for key in row))
    write(draw_learning_curve(rows, signal), path, columns, table)


def filter_histogram(rows: Rows, path: Path) -> None:
    """Plot how many questions of each mean reward the filter kept and dropped.

    ``rows`` are those of data/filtered/statistics.jsonl; one without ``reward_mean`` was never
    played and is not in the bars. The CSV has one row per bar, named by its centre.
    """
    centres, kept, dropped = _bars(rows)
    bars = [
        {"reward_mean": round(float(centre), 2), "kept": int(k), "dropped": int(d)}
        for centre, k, d in zip(centres, kept, dropped, strict=True)
    ]
    write(draw_filter(rows), path, ["reward_mean", "kept", "dropped"], bars)


def arms(rows: Rows, path: Path) -> None:
    """Plot each arm's means in the headline metrics with 95 % intervals, one row of panels per setting; ``rows`` are
    from ``evaluate.flat_rows``."""
    write(draw_arms(rows), path, ["setting", "arm", "metric", "mean", "low", "high", "n"], rows)


@styled
def draw_learning_curve(rows: Rows, signal: str = "reward") -> Figure:
    """Draw the plot of :func:`learning_curve`."""
    prefers = signal == "accuracy"
    figure = Figure(figsize=(5.8, 4.0), layout="constrained")
    top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=(2.6, 1))
    steps = [row["step"] for row in rows]
    reward = np.asarray([row["reward_mean"] for row in rows], dtype=float)
    window = 2 * min(4, len(rows) // 10) + 1
    top.plot(steps, reward, color=GREY, linewidth=0.9, marker="o", markersize=2.5, label="each step")
    if window > 1:
        top.plot(steps, smooth(reward, window), color=GREEN, linewidth=2.2, label=f"mean over {window} steps")
    changes = [after["step"] for before, after in pairwise(rows) if before.get("phase") != after.get("phase")]
    for number, step in enumerate(changes):
        name = "_phase" if number else "IPO follows SFT" if prefers else "other terms or questions"
        for axes in (top, bottom):
            axes.axvline(step - 0.5, color=GREY, linewidth=1.0, linestyle=":", label=name)
    if validation := points(rows):
        metric, n = leading_metric(validation[-1]), validation[-1]["questions"]
        values = [point[metric] for point in validation]
        name = f"{label(metric)} of {n:.0f} validation questions"
        top.plot([point["step"] for point in validation], values, color=BLUE, marker="s", markersize=4, label=name)
    top.set_title(f"{'Accuracy' if prefers else 'Reward'} while training (n = {len(rows)} steps)")
    top.set_ylabel("of tokens (SFT), of pairs (IPO)" if prefers else "mean reward")
    top.set_ylim(min(0.0, reward.min(initial=0.0)), max(1.0, reward.max(initial=1.0)) * 1.02)
    figure.legend(loc="outside lower center", ncols=2)
    if prefers:
        bottom.plot(steps, [row["loss"] for row in rows], color=ORANGE, linewidth=1.4)
        bottom.set_yscale("symlog", linthresh=1.0)  # nats per token for SFT, squared nats for IPO
        bottom.set_ylabel("loss")
    else:
        bottom.plot(steps, [100 * row["zero_std_share"] for row in rows], color=ORANGE, linewidth=1.4)
        bottom.set_ylim(0, 102)
        bottom.set_ylabel("% of groups\nwithout signal")
    bottom.set_xlabel("optimiser step")
    bottom.xaxis.set_major_locator(MaxNLocator(integer=True))
    figure.align_ylabels()
    return figure


def smooth(values: NDArray[Any], window: int) -> NDArray[Any]:
    """Return the centred mean over ``window`` neighbouring values; fewer at the ends and for short series.

    >>> smooth(np.array([0.0, 3.0, 6.0]), 3).tolist(), smooth(np.array([0.0, 1.0]), 5).tolist()
    ([1.5, 3.0, 4.5], [0.0, 1.0])
    """
    odd = min(window, len(values) - 1 + len(values) % 2)
    if odd < 2:
        return values
    kernel = np.ones(odd)
    return np.convolve(values, kernel, "same") / np.convolve(np.ones(len(values)), kernel, "same")


@styled
def draw_filter(rows: Rows) -> Figure:
    """Draw the plot of :func:`filter_histogram`."""
    centres, kept, dropped = _bars(rows)
    figure = Figure(figsize=(5.8, 3.3), layout="constrained")
    if not (kept + dropped).any():
        figure.text(0.5, 0.5, "No question was played by the filter, so none has a reward.", ha="center")
        return figure
    axes = figure.subplots()
    width = float(centres[1] - centres[0]) * 0.86
    axes.bar(centres, kept, width, color=GREEN, label=f"kept ({kept.sum():,})")
    style: dict[str, Any] = {"color": GREY, "hatch": "////", "edgecolor": GRID, "linewidth": 0}
    axes.bar(centres, dropped, width, bottom=kept, label=f"dropped ({dropped.sum():,})", **style)
    axes.set_title(f"Questions by mean reward of their rollouts (n = {kept.sum() + dropped.sum():,})")
    axes.set_xlabel("mean reward of a question")
    axes.set_ylabel("questions")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(False, axis="x")
    axes.legend(loc="upper right")
    return figure


def _bars(rows: Rows) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return the centres of 21 bars and their counts of kept and dropped questions."""
    played = [row for row in rows if "reward_mean" in row]
    means = np.asarray([row["reward_mean"] for row in played], dtype=float)
    kept = np.asarray([bool(row["kept"]) for row in played], dtype=bool)
    centres = np.linspace(min(0.0, means.min(initial=0.0)), max(1.0, means.max(initial=1.0)), 21)
    half = (centres[1] - centres[0]) / 2
    edges = np.append(centres - half, centres[-1] + half)
    return centres, np.histogram(means[kept], edges)[0], np.histogram(means[~kept], edges)[0]


@styled
def draw_arms(rows: Rows) -> Figure:
    """Draw the plot of :func:`arms`: one panel per headline metric and setting, one line per arm."""
    metrics, settings = headlines(rows)[:4], _settings(rows)
    names = list(dict.fromkeys(row["arm"] for row in rows))
    figure = Figure(figsize=(9.6, len(settings) * (0.38 * len(names) + 0.6) + 0.6), layout="constrained")
    lines = figure.subplots(len(settings), len(metrics), sharey=True, squeeze=False)
    for panels, setting in zip(lines, settings, strict=True):
        setting_rows = [row for row in rows if row.get("setting", "") == setting and row["metric"] in metrics]
        for panel, metric in zip(panels, metrics, strict=True):
            _arm_panel(panel, metric, names, [row for row in setting_rows if row["metric"] == metric])
        panels[0].set_yticks(range(len(names)), names)
        for tick in panels[0].get_yticklabels():
            tick.set_color(INK)
        if len(settings) > 1:
            panels[0].set_title(f"{setting or 'no setting'} ({_size(setting_rows)})")
    lines[0, 0].set_ylim(len(names) - 0.5, -0.5)
    size = _size([row for row in rows if row["metric"] in metrics]) if len(settings) == 1 else "setting by setting"
    figure.suptitle(f"Arms with 95 % intervals ({size})", x=0.0, ha="left", fontsize=10.5, fontweight="bold")
    return figure


def _settings(rows: Rows) -> list[str]:
    """Return the settings of flat rows, [""] if there are none."""
    return list(dict.fromkeys(row.get("setting", "") for row in rows)) or [""]


def _size(rows: Rows) -> str:
    """Return the numbers of questions as text.

    >>> _size([{"n": 40}, {"n": 40}]), _size([{"n": 1400}, {"n": 40}])
    ('n = 40 questions', 'n = 40 to 1,400 questions')
    """
    counts = sorted({int(row["n"]) for row in rows})
    return f"n = {counts[0]:,}{f' to {counts[-1]:,}' if len(counts) > 1 else ''} questions"


def _arm_panel(panel: Axes, metric: str, names: list[str], rows: Rows) -> None:
    for row in rows:
        place = names.index(row["arm"])
        colour, marker = arm_style(row["arm"], names)
        panel.plot(
            [100 * row["low"], 100 * row["high"]], [place, place], color=colour, linewidth=2.2, solid_capstyle="round"
        )
        panel.plot(100 * row["mean"], place, color=colour, marker=marker, markersize=7)
        right = row["mean"] < 0.7
        panel.annotate(
            f"{100 * row['mean']:.1f}",
            (100 * (row["high"] if right else row["low"]), place),
            xytext=(8 if right else -8, 0),
            textcoords="offset points",
            va="center",
            ha="left" if right else "right",
        )
    panel.set_xlim(-2, 102)
    panel.set_xlabel(f"{label(metric).replace(', given', chr(10) + 'given')}, %")
    panel.grid(False, axis="y")
    panel.spines["left"].set_visible(False)
    panel.tick_params(axis="y", length=0)


def draw_intervals(axes: Axes, x: Sequence[float], rows: Rows, **style: Any) -> None:
    """Draw the means of ``rows`` in percent, each with its interval."""
    mean, low, high = (np.asarray([row[key] for row in rows], dtype=float) for key in ("mean", "low", "high"))
    axes.errorbar(x, 100 * mean, yerr=100 * np.maximum([mean - low, high - mean], 0.0), **style)


def arm_style(arm: str, names: Sequence[str]) -> tuple[str, str]:
    """Return an arm's colour and marker; one that is not in ``ARMS`` gets a spare colour."""
    if arm in ARMS:
        colour, marker = ARMS[arm].look.split()
        return OF_ARMS[colour], marker
    spare = [name for name in names if name not in ARMS]
    return EXTRA[spare.index(arm) % len(EXTRA)], "X"


@styled
def svg(figure: Figure) -> str:
    """Return the figure as SVG text, the same bytes every time."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return buffer.getvalue()


def inline(figure: Figure) -> Markup:
    """Return a figure as SVG in a page's colours and font; our own markup, so not escaped."""
    text = re.sub(r"<metadata>.*?</metadata>", "", svg(figure), flags=re.DOTALL)
    for name, colour in COLOURS.items():
        text = text.replace(colour, f"var(--{name}, {colour})")
    return Markup(text[text.index("<svg") :].replace("<svg ", '<svg role="img" ', 1))


def write(figure: Figure, path: Path, columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Write ``path`` as .svg, and the rows as .csv with numbers rounded to six decimals."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({key: round(row[key], 6) if isinstance(row[key], float) else row[key] for key in row})
    write_text(path.with_suffix(".csv"), buffer.getvalue())
    write_text(path.with_suffix(".svg"), svg(figure))
