"""Loader of a registered retriever for MLflow's flavour ``python_function``: texts in, passages out."""

from typing import Any

import numpy as np

from harr.builders.trained import TrainedRetriever


class PassageModel:
    """A retriever with MLflow's model interface."""

    def __init__(self, retriever: TrainedRetriever) -> None:
        """Wrap a retriever, which stays open."""
        self._retriever = retriever

    def predict(self, model_input: Any, params: dict[str, Any] | None = None) -> list[list[dict[str, Any]]]:
        """Return the passages for every question of a list or column, best first."""
        found = self._retriever.search([str(text) for text in np.asarray(model_input).ravel()])
        return [[{"id": one.id, "title": one.title, "text": one.text} for one in passages] for passages in found]


def _load_pyfunc(folder: str, model_config: dict[str, Any]) -> PassageModel:
    return PassageModel(TrainedRetriever.load(folder, index=model_config["index"]))
