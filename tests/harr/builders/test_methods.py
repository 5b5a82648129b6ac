"""The records of methods: what the other stages read of them."""

from harr.builders.methods import METHODS
from harr.params.train import AgentParams, GRPOParams, LeReTParams


def test_a_card_says_what_was_trained_and_how() -> None:
    found = METHODS["agent"].describe(AgentParams(method="agent", steps=3, questions_per_step=4, episodes_per_pass=8))
    assert found == {
        "method": "agent (GRPO by TRL, loss dapo)",
        "steps": "3, each 4 questions x 8 rollouts",
        "learning rate": "0.0005",
    }
    warm = METHODS["grpo"].describe(GRPOParams(method="grpo", warm_start=16))
    assert warm["method"] == "grpo" and warm["warm start"] == "16 steps", "which is no GRPO by TRL"
    found = METHODS["leret"].describe(LeReTParams(method="leret"))
    assert found["epochs"] == "SFT 1 of batch 8, IPO 2 of 4" and found["target margin"] == "10 nats"
