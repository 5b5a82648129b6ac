"""Stage train: what it reports while it computes."""

from tasks.train import by_group


def test_figures_stand_in_groups_and_flat_zeros_are_left_out() -> None:
    points: list[tuple[int, dict[str, float]]] = []
    log = by_group(lambda step, values: points.append((step, dict(values))))
    log(0, {"reward_mean": 0.5, "kl": 0.0, "loss": 0.1})
    log(1, {"reward_mean": 0.0, "kl": 1.0, "loss": 0.0})
    log(2, {"validation.recall": 0.4, "kl": 0.0})
    assert points == [
        (0, {"reward/reward_mean": 0.5, "health/loss": 0.1}),
        (1, {"reward/reward_mean": 0.0, "health/kl": 1.0, "health/loss": 0.0}),
        (2, {"validation/recall": 0.4, "health/kl": 0.0}),
    ]
