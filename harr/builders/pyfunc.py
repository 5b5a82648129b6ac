"""What MLflow's flavour ``python_function`` loads a registered retriever with: texts in, passages out."""

from typing import Any

import numpy as np

from harr.builders.trained import TrainedRetriever


class PassageModel:
    """A retriever as MLflow asks a model."""

    def __init__(self, retriever: TrainedRetriever) -> None:
        """Take a retriever, which stays open."""
        self._retriever = retriever

    def predict(self, model_input: Any, params: dict[str, Any] | None = None) -> list[list[dict[str, Any]]]:
        """Return the passages of every question, a list or a column of them, the best first."""
        found = self._retriever.search([str(text) for text in np.asarray(model_input).ravel()])
        return [[{"id": one.id, "title": one.title, "text": one.text} for one in passages] for passages in found]


def _load_pyfunc(folder: str, model_config: dict[str, Any]) -> PassageModel:
    return PassageModel(TrainedRetriever.load(folder, index=model_config["index"]))
