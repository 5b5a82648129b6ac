"""Maps between two spaces: each finds what it can, and none sees the texts that decide."""

import numpy as np
import pytest
from harr_bridge.bridged import Pairs, learn
from harr_bridge.maps import SpaceMap, fitted_maps, procrustes, ridge


def unit(vectors: np.ndarray) -> np.ndarray:
    return (vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)).astype(np.float32)


@pytest.fixture
def texts() -> np.ndarray:
    return unit(np.random.default_rng(0).normal(size=(600, 12)))


def test_another_width_and_a_shift_are_found_by_ridge_and_not_by_a_rotation(texts: np.ndarray) -> None:
    rng = np.random.default_rng(1)
    old = (texts @ rng.normal(size=(12, 20)) + rng.normal(size=20)).astype(np.float32)
    near = ridge(texts, old, 1e-6)
    np.testing.assert_allclose(near(texts), unit(old), atol=1e-3)
    assert near(texts).shape == (600, 20)
    assert (procrustes(texts, old)(texts) * unit(old)).sum(-1).mean() < 0.99


def test_the_best_map_on_held_out_texts_is_taken(texts: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def watched(new: np.ndarray, old: np.ndarray, seed: int) -> list[SpaceMap]:
        seen.append(len(new))
        return [ridge(new, old[::-1], 0.01), *fitted_maps(new, old, seed)]

    monkeypatch.setattr("harr_bridge.bridged.fitted_maps", watched)
    turn = np.linalg.qr(np.random.default_rng(1).normal(size=(12, 12)))[0]
    old = unit(texts @ turn)
    found, worth, _ = learn(Pairs(np.arange(400), texts, old, 0.0, 0.0), seed=0)
    assert seen == [560], "a fifth of 200 questions decides"
    assert worth[found.name] == max(worth.values()) > 0.95
    np.testing.assert_allclose((found(texts) * old).sum(-1), 1.0, atol=0.02)
