"""What a training run keeps of every step: a figure a name, and how the rewards of its episodes are spread."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from harr.rag.scoring.reward import Scores, mean_of
from harr.types import Episode

TOTAL = "total"
"""The weighted sum of all terms, beside the names of the terms."""
LEVELS = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
"""Levels of the quantiles that are kept."""


def term_figures(scores: Scores, rewards: Sequence[float | None]) -> dict[str, Any]:
    """Return mean and deviation of every term over the episodes to which it applies, and ``quantiles`` of all.

    A term per step enters with its mean over the steps; one that applies to no episode is left out. ``quantiles``
    holds a list by ``LEVELS`` for each term and for the total of all.

    >>> found = term_figures({"recall": [0.0, 1.0, None], "rouge_l": [None] * 3}, [0.0, 1.0, 1.0])
    >>> {name: value for name, value in found.items() if name != "quantiles"}
    {'reward_recall_mean': 0.5, 'reward_recall_std': 0.5}
    >>> found["quantiles"]["total"]
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


def state_figures(episodes: Sequence[Episode]) -> dict[str, float]:
    """Return what the states of a step's searches lost to their limit of tokens; empty where a search has no state.

    ``dropped_hops`` and ``cut_hops`` are numbers, ``dropped_share`` and ``cut_share`` their shares of all hops that
    states had to show; ``cut_thoughts``, ``cut_questions`` and ``cut_queries`` count states.
    """
    found = [step.retrieval for episode in episodes for step in episode.steps]
    lost = [retrieval.shortened for retrieval in found if retrieval.state]
    if not lost:
        return {}
    hops, dropped, cut = (sum(part) for part in zip(*((own.hops, own.dropped, own.cut) for own in lost), strict=True))
    return {
        "dropped_hops": float(dropped),
        "cut_hops": float(cut),
        "dropped_share": dropped / max(1, hops),
        "cut_share": cut / max(1, hops),
        "cut_thoughts": float(sum(own.thought_cut for own in lost)),
        "cut_questions": float(sum(own.question for own in lost)),
        "cut_queries": float(sum(own.query for own in lost)),
    }


def column(term: str) -> str:
    """Return a term's name as part of a figure's: MLflow takes no colon.

    >>> column("recall"), column("my.terms:brevity")
    ('recall', 'my.terms.brevity')
    """
    return term.replace(":", ".")


def plain(row: Mapping[str, Any]) -> dict[str, float]:
    """Return the figures of a row, without its quantiles and faults: what a tracker takes.

    >>> plain({"reward_mean": 0.5, "quantiles": {"total": [0.5]}, "faults": {"no query": 1}})
    {'reward_mean': 0.5}
    """
    return {name: value for name, value in row.items() if not isinstance(value, dict)}
