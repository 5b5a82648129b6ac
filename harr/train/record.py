"""Figures of every step of a training run, and quantiles of its episodes' rewards."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from harr.rag.scoring.reward import Scores, mean_of

TOTAL = "total"
"""Name of the weighted sum of all terms."""
LEVELS = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
"""Levels of the quantiles."""


def term_figures(scores: Scores, rewards: Sequence[float | None]) -> dict[str, Any]:
    """Return every term's mean and standard deviation over the episodes to which it applies, and all ``quantiles``.

    A term per step counts with its mean over the steps; one that applies to no episode is left out. ``quantiles``
    has one list, in the order of ``LEVELS``, for each term and for the total.

    >>> figures = term_figures({"recall": [0.0, 1.0, None], "rouge_l": [None] * 3}, [0.0, 1.0, 1.0])
    >>> {name: value for name, value in figures.items() if name != "quantiles"}
    {'reward_recall_mean': 0.5, 'reward_recall_std': 0.5}
    >>> figures["quantiles"]["total"]
    [0.0, 0.2, 0.5, 1.0, 1.0, 1.0, 1.0]
    """
    applying = {
        column(name): [mean_of(value) for value in values if value is not None] for name, values in scores.items()
    }
    applying = {name: values for name, values in applying.items() if values}
    totals = [reward for reward in rewards if reward is not None]
    spread = {TOTAL: totals, **applying} if totals else {}
    figures: dict[str, Any] = {}
    for name, values in applying.items():
        figures[f"reward_{name}_mean"] = float(np.mean(values))
        figures[f"reward_{name}_std"] = float(np.std(values))
    levels = {name: np.quantile(values, LEVELS).tolist() for name, values in spread.items()}
    return figures | {"quantiles": {name: [round(value, 4) for value in values] for name, values in levels.items()}}


def column(term: str) -> str:
    """Return a term's name as part of a figure's name, without the colons that MLflow refuses.

    >>> column("recall"), column("my.terms:brevity")
    ('recall', 'my.terms.brevity')
    """
    return term.replace(":", ".")


def plain_figures(row: Mapping[str, Any]) -> dict[str, float]:
    """Return the scalar figures of a row for a tracker, without quantiles and faults.

    >>> plain_figures({"reward_mean": 0.5, "quantiles": {"total": [0.5]}, "faults": {"no query": 1}})
    {'reward_mean': 0.5}
    """
    return {name: value for name, value in row.items() if not isinstance(value, dict)}
