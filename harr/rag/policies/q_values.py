"""Values of picking a sentence next: two towers, two critics, rotary positions (Q-RAG, arXiv 2511.07328).

Q(s, a) = scale <state(s), rotate(action(a), position)>. The halves of the vectors are two critics; each stands for half
of the return. Positions rotate the action's vector only (RoFormer, arXiv 2104.09864).
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

SCALE = 2.0
"""Default factor of the inner product: unit vectors at 60 degrees have the value 1."""
INTERVAL = 20.0
"""Distance between the positions of two intervals; inside an interval positions run to 0.9 of it."""
BASE = 10_000.0
TOP = 5
"""Number of best actions considered in acting and in soft values."""
MODES = ("none", "absolute", "random", "relative", "relative_whole")
RANDOM_BLOCKS, RANDOM_ROOM = 5, 2000
"""Number of blocks of a document for random positions, and the range of those positions."""


def relative_positions(length: int, picked: Sequence[int]) -> NDArray[np.float32]:
    """Return the position of each sentence relative to those already picked, whatever the document's length.

    The picked sentences cut the document into intervals, each beginning with its pick; positions rise
    evenly from 0 to 18 inside the first, from 20 to 38 inside the second, and so on.

    >>> relative_positions(5, ())
    array([ 0. ,  4.5,  9. , 13.5, 18. ], dtype=float32)
    >>> relative_positions(5, (2,))
    array([ 0., 18., 20., 29., 38.], dtype=float32)
    """
    cuts = [0, *sorted(picked), length]
    parts = [
        np.linspace(0.0, 0.9 * INTERVAL, end - start) + INTERVAL * n for n, (start, end) in enumerate(pairwise(cuts))
    ]
    return np.concatenate(parts).astype(np.float32)


def positions(mode: str, length: int, picked: Sequence[int], rng: np.random.Generator) -> NDArray[np.float32]:
    """Return positions of all sentences of a document by ``mode`` (one of ``MODES``), shape (length,).

    ``absolute`` counts sentences; ``random`` counts them in five blocks of random lengths at random distances, so that
    a longer document has no position unseen in training (arXiv 2305.16843); ``relative_whole`` is ``relative`` in whole
    numbers, as published; ``none`` is all zero.

    >>> positions("relative_whole", 5, (), np.random.default_rng(0))
    array([ 0.,  4.,  9., 13., 18.], dtype=float32)
    >>> positions("random", 8, (), np.random.default_rng(0))
    array([  32.,   33.,  351.,  352., 1297., 1625., 1824., 1825.],
          dtype=float32)
    """
    match mode:
        case "relative":
            return relative_positions(length, picked)
        case "relative_whole":
            return np.floor(relative_positions(length, picked))
        case "absolute":
            return np.arange(length, dtype=np.float32)
        case "random":
            cuts = rng.choice(max(length - 1, 0), min(RANDOM_BLOCKS, length) - 1, replace=False) + 1
            offsets = np.sort(rng.integers(0, max(1, RANDOM_ROOM - length), len(cuts) + 1))
            places = np.arange(length)
            return (places + offsets[np.searchsorted(np.sort(cuts), places, side="right")]).astype(np.float32)
        case _:
            return np.zeros(length, dtype=np.float32)


def rotate(vectors_BD: Tensor, position_B: Tensor) -> Tensor:
    """Rotate each half of the vectors, taken as D/4 pairs, by its position; zero leaves it unchanged.

    >>> vectors = torch.nn.functional.normalize(torch.ones(1, 8), dim=-1)
    >>> rotate(vectors, torch.tensor([3.0])).norm().item() > 0.9999
    True
    """
    shape = vectors_BD.shape
    pairs = shape[-1] // 4
    rates_F = _rates(pairs, vectors_BD.device)
    angle_BF = position_B.to(rates_F)[..., None, None] * rates_F
    first, second = vectors_BD.unflatten(-1, (2, 2, pairs)).unbind(-2)
    turned = torch.stack(
        [first * angle_BF.cos() - second * angle_BF.sin(), first * angle_BF.sin() + second * angle_BF.cos()], dim=-2
    )
    return turned.reshape(shape)


def values(states_BD: Tensor, actions_BND: Tensor, scale: float = SCALE) -> Tensor:
    """Return both critics of every action, (2, B, N); their sum is Q.

    >>> values(torch.tensor([[1.0, 0.0]]), torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])).sum(0)
    tensor([[2., 0.]])
    """
    states_B2H = states_BD.unflatten(-1, (2, -1))
    return scale * torch.einsum("bch,bnch->cbn", states_B2H, actions_BND.unflatten(-1, (2, -1)))


def rotary_q_values(state_D: Tensor, actions_ND: Tensor, position_N: Tensor | None, scale: float = SCALE) -> Tensor:
    """Return both critics of one state for actions rotated by their positions (None: not rotated), (2, N).

    The same as ``values`` after ``rotate``, but without rotated vectors: with (s, t) a rotated pair (a, b) has the
    product (sa + tb) cos + (ta - sb) sin.

    >>> state, actions, position = torch.ones(8) / 8**0.5, torch.eye(8)[:3], torch.tensor([0.0, 2.0, 5.0])
    >>> turned = values(state[None], rotate(actions, position)[None])[:, 0]
    >>> bool(torch.allclose(rotary_q_values(state, actions, position), turned))
    True
    """
    if position_N is None:
        return scale * torch.stack(
            [half @ s for half, s in zip(actions_ND.chunk(2, -1), state_D.chunk(2), strict=True)]
        )
    pairs = len(state_D) // 4
    angle_N1F = (position_N[:, None] * _rates(pairs, position_N.device))[:, None]
    state_CPF, actions_NCPF = state_D.view(2, 2, pairs), actions_ND.view(-1, 2, 2, pairs)
    across_CPF = torch.stack([state_CPF[:, 1], -state_CPF[:, 0]], dim=1)
    along_NCF = (actions_NCPF * state_CPF).sum(2).mul_(angle_N1F.cos())
    along_NCF += (actions_NCPF * across_CPF).sum(2).mul_(angle_N1F.sin_())
    return scale * along_NCF.sum(-1).T


def _rates(pairs: int, device: torch.device) -> Tensor:
    """Return how fast each pair rotates, (pairs,)."""
    return BASE ** (-torch.arange(pairs, device=device) / pairs)


def soft_value(critics_CBN: Tensor, available_BN: Tensor, temperature: float) -> Tensor:
    """Return V(s): for each critic, temperature x logsumexp of its ``TOP`` best open actions; both summed, (B,).

    A state without an open action is worth 0. As the temperature goes to 0 the value becomes the maximum.

    >>> critics = torch.tensor([[[0.5, 0.2]], [[0.1, 0.3]]])
    >>> soft_value(critics, torch.tensor([[True, True]]), 1e-6)
    tensor([0.8000])
    """
    masked_CBN = critics_CBN.masked_fill(~available_BN, -1e9)
    best_CBT = masked_CBN.topk(min(TOP, critics_CBN.shape[-1]), dim=-1).values
    value_B = temperature * torch.logsumexp(best_CBT / temperature, dim=-1).sum(0)
    return torch.where(available_BN.any(-1), value_B, torch.zeros_like(value_B))


def select_action(q_BN: Tensor, available_BN: Tensor, temperature: float, generator: torch.Generator | None) -> Tensor:
    """Choose one action per row: Boltzmann over the ``TOP`` best open ones, or the best without a generator.

    At an infinite temperature all open ones are equally likely.

    >>> select_action(torch.tensor([[0.2, 0.9, 0.5]]), torch.tensor([[True, False, True]]), 0.1, None)
    tensor([2])
    """
    masked_BN = q_BN.masked_fill(~available_BN, -1e9)
    if generator is None:
        return masked_BN.argmax(-1)
    if temperature == float("inf"):
        return torch.multinomial(available_BN.float(), 1, generator=generator).squeeze(-1)
    best = masked_BN.topk(min(TOP, q_BN.shape[-1]), dim=-1)
    chances_BT = torch.softmax(best.values / temperature, dim=-1)
    return best.indices.gather(-1, torch.multinomial(chances_BT, 1, generator=generator)).squeeze(-1)
