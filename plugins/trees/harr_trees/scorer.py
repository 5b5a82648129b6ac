"""Boosted trees instead of the link term: they score a candidate by its features and its similarity to the state.

They are LambdaMART trees (LightGBM), learnt from gold passages.
"""

from pathlib import Path

import lightgbm
import numpy as np
from harr_links.links import FEATURES
from numpy.typing import NDArray

from harr.errors import ModelError
from harr.io.files import write_text
from harr.rag.policies.link_features import Candidates, Links

TREES = "trees.txt"
"""File of the trees in the folder of an adapter or of a merged model."""
COLUMNS = (
    *FEATURES,
    "cosine",  # of the state and the passage
    "gap",  # difference of that cosine to the highest of the search
    "cosine_rank",  # 1 / (1 + rank) by cosine, rank from 0
    "picks",  # number of passages picked before
)
"""What a tree may ask about a candidate, in order."""
TIE = 1e-6
"""Weight of the cosine next to the trees' score, so that the vectors order candidates in the same leaves."""


class Trees:
    """A score by boosted trees, and the links that compute their features.

    Args:
        links: candidates and features in one corpus.
        booster: the trees.
    """

    def __init__(self, links: Links, booster: lightgbm.Booster) -> None:
        """Store the links and the trees."""
        self.links, self.booster = links, booster

    def score(self, candidates: Candidates) -> NDArray[np.float32]:
        """Return the scores, (B, N); padding keeps its cosine of minus infinity."""
        is_candidate_BN, scores_BN = candidates.pool_BN >= 0, candidates.cosines_BN.copy()
        table_RC = describe_candidates(candidates)[is_candidate_BN]
        scores_BN[is_candidate_BN] = self.booster.predict(table_RC) + TIE * scores_BN[is_candidate_BN]
        return scores_BN

    def save(self, folder: Path) -> None:
        """Write the trees in LightGBM's text format to the folder of an adapter."""
        write_text(folder / TREES, self.booster.model_to_string())

    @classmethod
    def load(cls, links: Links, folder: Path) -> "Trees":
        """Read the trees in the folder of an adapter or of a merged model.

        Raises:
            ModelError: the file has no LightGBM trees, or they need columns that this version does not compute.
        """
        try:
            booster = lightgbm.Booster(model_file=str(folder / TREES))
        except lightgbm.basic.LightGBMError as error:
            raise ModelError(f"{folder / TREES} holds no trees of LightGBM ({error}); train again") from None
        if tuple(booster.feature_name()) != COLUMNS:
            raise ModelError(f"{folder / TREES} asks for other columns than this version of harr computes; train again")
        return cls(links, booster)


def describe_candidates(candidates: Candidates) -> NDArray[np.float32]:
    """Return the ``COLUMNS`` of every candidate, (B, N, C); those of padding are meaningless."""
    cosines_BN = candidates.cosines_BN
    ranks_BN = np.argsort(np.argsort(-cosines_BN, axis=-1, kind="stable"), axis=-1)
    picks_B1 = np.array([[len(search.exclude_ids)] for search in candidates.searches])
    finite_BN = np.where(np.isfinite(cosines_BN), cosines_BN, -1.0)
    columns = (
        finite_BN,
        finite_BN.max(-1, keepdims=True) - finite_BN,
        1.0 / (1 + ranks_BN),
        np.broadcast_to(picks_B1, finite_BN.shape),
    )
    return np.concatenate([candidates.features_BNF, np.stack(columns, axis=-1)], axis=-1, dtype=np.float32)
