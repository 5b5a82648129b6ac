"""The link term: a small learnt term for features of a candidate beyond its similarity to the state.

The score of a candidate is <state, passage> / T + w x, where x says which sources found the candidate and how well the
linking words fit the question (plug-in links). The weights w start at 0, so that training starts with
the vectors' own ranking, and learn by the same loss. A hidden layer was no better (plugins/links).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor

from harr.errors import ModelError
from harr.rag.policies.encoder_adapter import LINK_FEATURES, scorers
from harr.types import Search


@dataclass(frozen=True, slots=True)
class Candidates:
    """The candidates of B searches, padded to N each."""

    searches: Sequence[Search]
    pool_BN: NDArray[np.int64]
    """Rows of the candidates; -1 is padding."""
    cosines_BN: NDArray[np.float32]
    """Similarity of state and candidate; minus infinity for padding."""
    features_BNF: NDArray[np.float32]
    """Features of the candidates; meaningless for padding."""


class Links(Protocol):
    """Further sources of candidates, and features of every candidate, in one corpus (``retriever.link_features``)."""

    names: Sequence[str]
    """Names of the features, in the order of their axis."""

    def gather(
        self, searches: Sequence[Search], nearest: Sequence[NDArray[np.int64]], *, search: bool
    ) -> tuple[list[NDArray[np.int64]], NDArray[np.float32]]:
        """Return the candidates of every search, and their features, (B, N, F), padded with 0.

        Unless the corpus is searched (``search``), the ``nearest`` are the only candidates.
        """
        ...


class CandidateScorer(Protocol):
    """Scores candidates by their similarity to the state and their features."""

    links: Links

    def score(self, candidates: Candidates) -> NDArray[np.float32]:
        """Return the scores, (B, N); minus infinity for padding, like its cosine."""
        ...


class LinkFeatures(torch.nn.Module):
    """The learnt term: a weight per feature, and the links that compute the features.

    A cosine divided by ``temperature`` is in nats, like the term.
    """

    def __init__(self, links: Links, temperature: float) -> None:
        """Start with weights of 0."""
        super().__init__()
        self.links, self.temperature = links, temperature
        self.weights = torch.nn.Parameter(torch.zeros(len(links.names)))

    def forward(self, features_BNF: Tensor) -> Tensor:
        """Return the term of every candidate, (B, N), in nats."""
        return features_BNF @ self.weights

    def score(self, candidates: Candidates) -> NDArray[np.float32]:
        """Return the scores from vector and term, (B, N), in units of the cosine, without gradient."""
        term_BN: NDArray[np.float32] = candidates.features_BNF @ self.weights.detach().cpu().numpy()
        return candidates.cosines_BN + self.temperature * term_BN

    def save(self, folder: Path) -> None:
        """Write the weights, by the names of their features, into the folder of an adapter."""
        weights = self.weights.detach().cpu()
        save_file(
            {name: weight.clone() for name, weight in zip(self.links.names, weights, strict=True)},
            folder / LINK_FEATURES,
        )

    def load(self, folder: Path) -> "LinkFeatures":
        """Read the weights from an adapter's or a merged model's folder; features without one get 0.

        Raises:
            ModelError: there are no weights, or one belongs to an unknown feature.
        """
        if not (folder / LINK_FEATURES).exists():
            raise ModelError(
                f"{folder} has no {LINK_FEATURES}: it was trained without retriever.link_features; leave that out, or "
                "install the plug-in that trained it"
            )
        weights = load_file(folder / LINK_FEATURES)
        if not set(weights) <= set(self.links.names):
            raise ModelError(
                f"{folder / LINK_FEATURES} is of other features than this version of harr reads; train again"
            )
        self.weights.data = torch.stack([weights.get(name, torch.zeros(())) for name in self.links.names])
        return self


def open_scorer(folder: Path, term: LinkFeatures) -> CandidateScorer:
    """Return the scorer of candidates in an adapter's or a merged model's folder.

    It is an installed package's scorer if its file is there (``harr.scorers``, docs/extend.md), otherwise ``term`` with
    the folder's weights.

    Raises:
        ModelError: the folder has neither.
    """
    opened = (point.load()(term.links, folder) for name, point in scorers().items() if (folder / name).exists())
    return next(opened, None) or term.load(folder)
