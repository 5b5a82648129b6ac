"""Maps from one encoder's space into another's, learnt from texts that both encode (Drift-Adapter, arXiv 2509.23471).

A map has one or two layers, so it becomes stock ``Dense`` modules of sentence-transformers. All maps are fitted in
seconds to texts that have a row in both tables; held-out texts decide which one is used.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers.base.modules import Dense
from torch import nn

Array = NDArray[np.float32]

PENALTIES = (0.01, 0.1, 1.0)
"""Ridge penalties, as shares of the mean variance per coordinate."""
RANKS = (64, 128, 256)
"""Ranks of linear maps, besides the full one."""
EXTRA, EPOCHS, BATCH, RATE = 256, 20, 128, 3e-4
"""The MLP: hidden units beyond those of the linear map, epochs, and AdamW's batch size and rate."""


@dataclass(frozen=True)
class SpaceMap:
    """A map of unit vectors (n, D) to unit vectors (n, M): affine layers with GELU between them."""

    name: str
    """How it was learnt."""
    layers: tuple[tuple[Array, Array], ...]
    """Weight (out, in) and bias (out,) of every layer."""

    def modules(self) -> list[Dense]:
        """Return the layers as stock modules."""
        last = len(self.layers) - 1
        return [
            Dense(
                weight.shape[1],
                weight.shape[0],
                activation_function=nn.Identity() if place == last else nn.GELU(),
                init_weight=torch.from_numpy(weight),
                init_bias=torch.from_numpy(bias),
            )
            for place, (weight, bias) in enumerate(self.layers)
        ]

    def __call__(self, vectors_ND: Array) -> Array:
        """Return the mapped vectors, of length 1."""
        features = {"sentence_embedding": torch.from_numpy(np.ascontiguousarray(vectors_ND))}
        with torch.no_grad():
            for layer in self.modules():
                features = layer(features)
            mapped: Array = nn.functional.normalize(features["sentence_embedding"], dim=-1).numpy()
        return mapped


def fitted_maps(new_ND: Array, old_NM: Array, seed: int) -> Iterator[SpaceMap]:
    """Yield every map to try, from vectors of the same texts by the new encoder and by that of the documents."""
    yield procrustes(new_ND, old_NM)
    for penalty in PENALTIES:
        full = ridge(new_ND, old_NM, penalty)
        yield full
        for rank in RANKS:
            if rank < min(new_ND.shape[1], old_NM.shape[1]):
                yield low_rank(full, new_ND, rank)
    yield mlp(ridge(new_ND, old_NM, PENALTIES[0]), new_ND, old_NM, seed)


def procrustes(new_ND: Array, old_NM: Array) -> SpaceMap:
    """Return the rotation (with reflection, scale and shift) of least error (Schönemann 1966).

    >>> rng = np.random.default_rng(0)
    >>> turn = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    >>> texts = rng.normal(size=(20, 3)).astype(np.float32)
    >>> np.allclose(procrustes(texts, texts @ turn).layers[0][0], turn.T, atol=1e-5)
    True
    """
    new_mean, old_mean = new_ND.mean(0), old_NM.mean(0)
    centred_ND = new_ND - new_mean
    left, strengths, right = np.linalg.svd(centred_ND.T @ (old_NM - old_mean), full_matrices=False)
    return _affine("procrustes", left @ right * (strengths.sum() / np.square(centred_ND).sum()), new_mean, old_mean)


def ridge(new_ND: Array, old_NM: Array, penalty: float) -> SpaceMap:
    """Return the linear map of least squared error, with a penalty on its weights but not on its shift."""
    new_mean, old_mean = new_ND.mean(0), old_NM.mean(0)
    centred_ND = (new_ND - new_mean).astype(np.float64)
    square_DD = centred_ND.T @ centred_ND
    square_DD += penalty * np.trace(square_DD) / len(square_DD) * np.eye(len(square_DD))
    weight_DM = np.linalg.solve(square_DD, centred_ND.T @ (old_NM - old_mean))
    return _affine(f"ridge {penalty:g}", weight_DM, new_mean, old_mean)


def low_rank(full: SpaceMap, new_ND: Array, rank: int) -> SpaceMap:
    """Return a linear map cut to the ``rank`` directions in which its results vary most (reduced-rank regression)."""
    weight_MD, bias_M = full.layers[0]
    new_mean = new_ND.mean(0)
    directions_RM = np.linalg.svd((new_ND - new_mean) @ weight_MD.T, full_matrices=False)[2][:rank]
    cut_DM = weight_MD.T @ directions_RM.T @ directions_RM
    return _affine(f"{full.name}, rank {rank}", cut_DM, new_mean, new_mean @ weight_MD.T + bias_M)


def mlp(start: SpaceMap, new_ND: Array, old_NM: Array, seed: int) -> SpaceMap:
    """Return a map with a hidden layer that starts as the linear map ``start`` and learns, by cosine, what that misses.

    GELU(x) - GELU(-x) = x, so two units hold a coordinate of the linear map; further units start at 0.
    """
    torch.manual_seed(seed)
    weight_MD, bias_M = start.layers[0]
    hidden, width = 2 * len(bias_M) + EXTRA, new_ND.shape[1]
    first, second = nn.Linear(width, hidden), nn.Linear(hidden, len(bias_M))
    with torch.no_grad():
        both = torch.from_numpy(np.concatenate([weight_MD, -weight_MD])), torch.from_numpy(np.tile(bias_M, 2))
        first.weight[: 2 * len(bias_M)], first.bias[: 2 * len(bias_M)] = both
        first.bias[len(bias_M) : 2 * len(bias_M)] *= -1
        unit = torch.eye(len(bias_M))
        second.weight.copy_(torch.cat([unit, -unit, torch.zeros(len(bias_M), EXTRA)], 1))
        second.bias.zero_()
    network = nn.Sequential(first, nn.GELU(), second)
    new, old = torch.from_numpy(new_ND), torch.from_numpy(old_NM)
    optimizer = torch.optim.AdamW(network.parameters(), lr=RATE)
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(new)).split(BATCH):
            loss = -nn.functional.cosine_similarity(network(new[rows]), old[rows]).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    layers = tuple((part.weight.detach().numpy(), part.bias.detach().numpy()) for part in (first, second))
    return SpaceMap("mlp", layers)


def _affine(name: str, weight_DM: NDArray[np.floating], new_mean: Array, old_mean: Array) -> SpaceMap:
    """Return the map that turns around the two means."""
    shift = old_mean - new_mean @ weight_DM
    return SpaceMap(name, ((np.ascontiguousarray(weight_DM.T, np.float32), shift.astype(np.float32)),))
