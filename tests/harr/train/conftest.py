"""Games of the tiny corpus for learners: an untrained encoder, and two towers that pick."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
import torch

from harr.corpus.passages import Passages
from harr.embed.encoder import Encoder
from harr.rag.pipelines.pick import pick
from harr.rag.policies.two_tower import TwoTowerPolicy
from harr.rag.scoring.reward import Reward
from harr.rag.setup import Setup


@pytest.fixture
def fresh(setup: Setup, tiny: str) -> Callable[[], Setup]:
    """A function that makes the game of ``setup`` with an untrained encoder."""
    return lambda: replace(setup, retriever=replace(setup.retriever, encoder=Encoder(tiny, max_tokens=64)))


@pytest.fixture
def towers(corpus, tiny: str) -> Callable[..., Setup]:
    """A function that makes a game of two towers: pick the winter passage among a town question's four given ones."""

    def game(mode: str = "none", picks: int = 1, model: str = "", normalize: bool = True) -> Setup:
        policy = TwoTowerPolicy(
            states=Encoder(model or tiny, max_tokens=32, normalize=normalize),
            actions=Encoder(model or tiny, max_tokens=32, normalize=normalize),
            passages=Passages.open(corpus.folder / "corpus"),
            mode=mode,
            temperature=0.1,
            max_tokens=32,
            sampling=torch.Generator().manual_seed(0),
        )
        return Setup(corpus.questions, partial(pick, picks=picks), policy, None, Reward({"recall": 1.0}), "towers")

    return game
