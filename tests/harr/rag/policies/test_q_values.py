"""Golden checks of Q-RAG's value function: positions, rotation, soft values, acting."""

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from harr.rag.policies.q_values import (
    INTERVAL,
    MODES,
    TOP,
    positions,
    relative_positions,
    rotate,
    select_action,
    soft_value,
    values,
)
from harr.train.advantages import lambda_returns


@given(st.integers(1, 60), st.data())
def test_relative_positions_rise_and_show_what_lies_between_picks(length: int, data) -> None:
    picked = data.draw(st.lists(st.integers(0, length - 1), unique=True, max_size=4))
    rho = relative_positions(length, picked)
    assert len(rho) == length and (np.diff(rho) > 0).all()
    for number, pick in enumerate(sorted(picked), start=1):
        assert rho[pick] == INTERVAL * number, "a picked sentence begins its interval"


def test_every_mode_gives_one_position_a_sentence_in_order_whatever_the_length() -> None:
    for mode in MODES:
        rho = positions(mode, 7, (3,), np.random.default_rng(0))
        assert rho.shape == (7,) and (np.diff(rho) >= 0).all() and (mode == "none") == (not rho.any()), mode
    short, long = relative_positions(101, ()), relative_positions(100_001, ())
    assert short[50] == pytest.approx(long[50_000], abs=1e-4)


def test_a_rotation_keeps_lengths_turns_halves_alike_and_adds_up() -> None:
    vectors = torch.randn(4, 16, generator=torch.Generator().manual_seed(0))
    turned = rotate(rotate(vectors, torch.full((4,), 2.0)), torch.full((4,), 3.0))
    torch.testing.assert_close(turned, rotate(vectors, torch.full((4,), 5.0)))
    torch.testing.assert_close(turned.norm(dim=-1), vectors.norm(dim=-1))
    twin = torch.cat([vectors[:, :8], vectors[:, :8]], dim=-1)
    left, right = rotate(twin, torch.arange(4.0)).chunk(2, dim=-1)
    torch.testing.assert_close(left, right)
    torch.testing.assert_close(rotate(vectors, torch.zeros(4)), vectors)


def test_the_two_critics_sum_to_the_inner_product() -> None:
    states, actions = torch.randn(3, 8), torch.randn(3, 5, 8)
    critics = values(states, actions)
    assert critics.shape == (2, 3, 5)
    torch.testing.assert_close(critics.sum(0), 2.0 * torch.einsum("bd,bnd->bn", states, actions))


def test_a_soft_value_looks_at_the_best_open_actions_only() -> None:
    critics = torch.linspace(0, 1, 12).expand(2, 1, 12)
    open_ = torch.ones(1, 12, dtype=torch.bool)
    open_[0, -1] = False  # the best is taken: the next five count, not four
    by_hand = 0.1 * torch.logsumexp(critics[0, 0, 11 - TOP : 11] / 0.1, dim=-1)
    torch.testing.assert_close(soft_value(critics, open_, 0.1), 2 * by_hand[None])
    torch.testing.assert_close(soft_value(critics, open_, 1e-5), 2 * critics[0, :, 10], atol=1e-4, rtol=0)
    assert soft_value(critics, torch.zeros_like(open_), 0.1).item() == 0.0


def test_acting_prefers_the_best_and_never_takes_a_closed_action() -> None:
    q = torch.tensor([[1.0, 0.9, 0.0, -1.0, -2.0, -3.0, 0.95]]).expand(4000, -1)
    open_ = torch.tensor([False, True, True, True, True, True, True]).expand(4000, -1)
    assert set(select_action(q, open_, 0.1, None).tolist()) == {6}
    drawn = select_action(q, open_, 0.1, torch.Generator().manual_seed(0))
    assert 0 not in drawn and 5 not in drawn, "closed, and beyond the best five"
    share = (drawn == 6).float().mean().item()
    chances = torch.softmax(torch.tensor([0.9, 0.0, -1.0, -2.0, 0.95]) / 0.1, dim=-1)
    assert share == pytest.approx(chances[-1].item(), abs=0.03)


def test_lambda_returns_bootstrap_from_the_next_state() -> None:
    """The published code uses the value of the state after the next one; here eq. 9 of PQN, by hand."""
    rewards, before, discount, mix = [0.0, 0.5, 0.0, 1.0], [0.1, 0.4, 0.2, 0.8], 0.9, 0.65
    last = 1.0
    third = discount * (0.35 * 0.8 + mix * last)
    second = 0.5 + discount * (0.35 * 0.2 + mix * third)
    first = discount * (0.35 * 0.4 + mix * second)
    assert lambda_returns(rewards, before, discount=discount, lambda_=mix) == pytest.approx(
        [first, second, third, last]
    )
