"""A small learnt term beside the vector: what is known of a candidate apart from its text's likeness to the state.

The score of a candidate is <state, passage> / T + w x, where x is where the candidate comes from and how well the words
that lead to it fit the question (``harr/rag/retrieval/links.py``). The weights w begin at 0, so that training begins
with the vectors' own ranking, and learn by the same loss. A hidden layer was no better (docs/links.md).
"""

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor

from harr.errors import ModelError
from harr.rag.policies.encoder_adapter import EVIDENCE
from harr.rag.retrieval.links import FEATURES, Links


class Evidence(torch.nn.Module):
    """The learnt term: a weight a feature, and the links that tell the features."""

    def __init__(self, links: Links) -> None:
        """Begin with a term of 0 everywhere."""
        super().__init__()
        self.links = links
        self.weights = torch.nn.Parameter(torch.zeros(len(FEATURES)))

    def forward(self, known_BNF: Tensor) -> Tensor:
        """Return the term of every candidate, (B, N), in nats."""
        return known_BNF @ self.weights

    def weigh(self, known_BNF: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the term as the weights are now, without gradient."""
        found: NDArray[np.float32] = known_BNF @ self.weights.detach().cpu().numpy()
        return found

    def save(self, folder: Path) -> None:
        """Write the weights, by the names of their features, into the folder of an adapter."""
        weights = self.weights.detach().cpu()
        save_file({name: weight.clone() for name, weight in zip(FEATURES, weights, strict=True)}, folder / EVIDENCE)

    def load(self, folder: Path) -> "Evidence":
        """Read the weights in the folder of an adapter or of a merged model; a feature without one weighs nothing.

        Raises:
            ModelError: there are none, or one is of a feature that is not known here.
        """
        if not (folder / EVIDENCE).exists():
            raise ModelError(f"{folder} has no {EVIDENCE}: it was trained without retriever.evidence; set that to null")
        told = load_file(folder / EVIDENCE)
        if not set(told) <= set(FEATURES):
            raise ModelError(f"{folder / EVIDENCE} is of other features than this version of harr reads; train again")
        self.weights.data = torch.stack([told.get(name, torch.zeros(())) for name in FEATURES])
        return self
