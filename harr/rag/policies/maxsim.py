"""Late interaction as a score: every token of a state looks for its like in a passage (ColBERT, arXiv 2004.12832)."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from harr.corpus.vectors import LARGEST, Vectors


def maxsim(states_UX: Tensor, state_of_B: Tensor, pool_BN: NDArray[np.int64], vectors: Vectors) -> Tensor:
    """Return the MaxSim of states with their candidates, (B, N), with the gradient of the states.

    It is the mean, not the sum, over the tokens of a state of the largest inner product with a token of the passage,
    so that it lies between -1 and 1 as a cosine does. A candidate that several rows of a state share is scored once.

    Args:
        states_UX: distinct states as :meth:`harr.embed.encoder.Encoder.late` makes them.
        state_of_B: which of them each row belongs to.
        pool_BN: candidate rows; what padding (-1) scores means nothing.
        vectors: passages' token vectors.
    """
    tokens_ULW = states_UX[:, vectors.width :].unflatten(-1, (-1, vectors.token_width))
    order, parts = [state_of_B[:0]], [states_UX[:0, :1].expand(0, pool_BN.shape[1])]  # no row has a gradient, too
    for state in state_of_B.unique().tolist():
        order.append((state_of_B == state).nonzero().squeeze(-1))
        rows_R, place_bN = np.unique(np.maximum(pool_BN[order[-1].numpy()], 0), return_inverse=True)
        tokens_LW = tokens_ULW[state]
        passages_RTW = torch.from_numpy(vectors.tokens(rows_R)).to(tokens_LW.device)
        parts.append(mean_of_best(tokens_LW[tokens_LW.any(-1)], passages_RTW)[torch.from_numpy(place_bN)])
    return torch.cat(parts)[torch.cat(order).argsort()]


def mean_of_best(state_LW: Tensor, passages_RTW: Tensor) -> Tensor:
    """Return the score of passages for the tokens of one state, (R,); tokens of a passage that are 0 are none.

    >>> state, passages = torch.eye(2), torch.tensor([[[127, 0], [0, 0]], [[0, 127], [127, 0]]], dtype=torch.int8)
    >>> mean_of_best(state, passages)
    tensor([0.5000, 1.0000])
    """
    there_RT = passages_RTW.any(-1)
    passages_RTW = passages_RTW[:, : int(there_RT.sum(-1).max())]
    alike_RTL = (passages_RTW.to(state_LW) / LARGEST) @ state_LW.T
    return alike_RTL.masked_fill(~there_RT[:, : passages_RTW.shape[1], None], -torch.inf).amax(1).mean(-1)
