"""Charts of a training run: a panel for every figure of its method, and its seconds by phase."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np

from harr.evaluate.tables import is_share, label
from harr.rag.validation import AFTER, BEFORE, leading_metric, points
from harr.report.charts import Line, Panel
from harr.report.plots import smooth
from harr.report.reward_plots import TOTAL, mean_column, terms, window

Rows = Sequence[Mapping[str, Any]]
FIGURES = {
    "zero_std_share": ("Groups without signal", "Share of groups whose rollouts all score alike: they teach nothing"),
    "entropy": ("Entropy", "How undecided the policy is, in nats a choice; near 0 it explores no more"),
    "kl": ("KL", "How far the policy went from where it began, in nats"),
    "clip_share": ("Clip share", "Share of choices whose update was cut at the trust region"),
    "grad_norm": ("Gradient norm", "Length of the gradient before it is cut"),
    "loss": ("Loss", "What the optimiser lowers; of a policy it need not fall"),
    "value_loss": ("Value loss", "Squared error of the value that PPO subtracts"),
    "temperature": ("Temperature", "How much chance is in the choices that are learnt from"),
    "margin_nats": ("Margin", "By how many nats the better query of a pair is more likely"),
    "own_tokens": ("Tokens written", "Tokens that the model wrote, an episode"),
    "told_tokens": ("Tokens read", "Tokens that the environment put in, an episode"),
    "searches": ("Searches", "Searches an episode"),
    "malformed": ("Malformed replies", "Replies an episode that could not be read"),
    "logprob_gap": ("Log-probability gap", "Between the sampled and the learnt policy, in nats; near 0 is right"),
    "seconds": ("Seconds", "Seconds a step, without validation"),
    "play_seconds": ("Seconds of play", "Seconds a step in which its rollouts are played and rewarded"),
    "update_seconds": ("Seconds of update", "Seconds a step in which the weights learn from the rollouts"),
}
"""Figures of a step in the order of the page: title and meaning. A method has those that it writes."""
SHARED = frozenset({"zero_std_share", "clip_share"})
"""Figures that are shares."""
PER_EPISODE = frozenset({"searches", "malformed"})
"""Figures that are sums over the episodes of a step."""
PLAY = "play_seconds"
PHASES = {-1.0: "warm start"}


def training_panels(rows: Rows, signal: str = "reward") -> tuple[list[Panel], list[str]]:
    """Return the panels of a run, none twice and none that is 0 throughout, and the titles of those that were 0.

    Args:
        rows: the dicts that training returns, one per step (``harr/train/record.py``).
        signal: ``reward``, or ``accuracy`` of preferences.
    """
    panels: list[Panel] = []
    zero: list[str] = []
    for panel in (*_signals(rows, signal), *_validation(rows), *_figures(rows)):
        if not any(y for line in panel.lines for _, y in line.points):
            zero.append(panel.title)
        elif panel.data not in [other.data for other in panels]:
            panels.append(panel)
    return panels, zero


def _signals(rows: Rows, signal: str) -> Iterator[Panel]:
    """Yield the reward and each of its terms; of preferences their accuracy."""
    if signal == "accuracy":
        yield _panel(rows, "reward_mean", "Accuracy", "Of tokens in SFT, then of pairs in IPO, before each step", True)
        return
    yield _panel(rows, mean_column(TOTAL), "Reward", "Mean over the episodes of a step, with the chance of training")
    for term in terms(rows):
        if term != TOTAL and any(mean_column(term) in row for row in rows):
            yield _panel(rows, mean_column(term), f"Reward: {label(term)}", "The term as it is, before its weight")


def _validation(rows: Rows) -> Iterator[Panel]:
    """Yield the panels of the validation: its score by step, and its seconds."""
    if not (validated := points(rows)):
        return
    metric, n = leading_metric(validated[-1]), validated[-1]["questions"]
    scores = tuple((float(point["step"]), float(point[metric])) for point in validated if metric in point)
    says = f"{n:.0f} questions that are never learnt from, played by the best choice"
    yield Panel(f"Validation: {label(metric)}", says, (Line("validation", scores, "dots"),), is_share(metric))
    seconds = tuple((float(point["step"]), float(point["seconds"])) for point in validated if "seconds" in point)
    if seconds:
        yield Panel("Validation: seconds", "Seconds to play all of these", (Line("seconds", seconds, "dots"),))


def _figures(rows: Rows) -> Iterator[Panel]:
    rows = [{**row, "update_seconds": _update(row)} if PLAY in row else row for row in rows]
    for name, (title, says) in FIGURES.items():
        if any(name in row for row in rows):
            yield _panel(rows, name, title, says, name in SHARED)


def _panel(rows: Rows, name: str, title: str, says: str, percent: bool = False) -> Panel:
    """Return the panel of one figure: each step, and its mean over neighbouring steps of the same phase."""
    hits = [row for row in rows if name in row]
    shares = [max(1.0, row.get("episodes", 1.0)) if name in PER_EPISODE else 1.0 for row in hits]
    values = np.array([row[name] / share for row, share in zip(hits, shares, strict=True)], dtype=float)
    hits, values = ([row for row, ok in zip(hits, np.isfinite(values), strict=True) if ok], values[np.isfinite(values)])
    steps = [float(row["step"]) + 1 for row in hits]
    cuts = np.flatnonzero(np.diff([row.get("phase", 0.0) for row in hits])) + 1
    wide = window(rows)
    lines = [Line("each step", tuple(zip(steps, values.tolist(), strict=True)))]
    if wide > 1:
        smoothed = np.concatenate([smooth(part, wide) for part in np.split(values, cuts)])
        lines.append(Line(f"mean over {wide} steps", tuple(zip(steps, smoothed.tolist(), strict=True)), "smooth"))
    return Panel(title, says, tuple(lines), percent)


def _update(row: Mapping[str, Any]) -> float:
    """Return the seconds of a step after its play."""
    return float(row.get("seconds", 0.0) - row[PLAY])


@dataclass(frozen=True, slots=True)
class Phase:
    """Steps of one phase and their seconds: of all, of play and update where rows have them, and of the validation."""

    name: str
    steps: int
    seconds: float
    play: float | None
    update: float | None
    validation: float


def seconds_by_phase(rows: Rows) -> list[Phase]:
    """Return the seconds of each phase, in their order.

    >>> seconds_by_phase([{"phase": -1.0, "seconds": 2.0, "play_seconds": 0.5}])
    [Phase(name='warm start', steps=1, seconds=2.0, play=0.5, update=1.5, validation=0.0)]
    """
    parts = [(phase, list(steps)) for phase, steps in groupby(rows, key=lambda row: row.get("phase", 0.0))]
    later = sum(phase not in PHASES for phase, _ in parts) > 1
    return [
        Phase(
            PHASES.get(phase, f"phase {phase:g}" if later else "training"),
            len(steps),
            float(sum(row.get("seconds", 0.0) for row in steps)),
            float(sum(row[PLAY] for row in steps)) if all(PLAY in row for row in steps) else None,
            float(sum(map(_update, steps))) if all(PLAY in row for row in steps) else None,
            float(sum(row.get(name, {}).get("seconds", 0.0) for row in steps for name in (BEFORE, AFTER))),
        )
        for phase, steps in parts
    ]
