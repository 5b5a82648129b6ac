"""Plackett-Luce: an ordered choice of K out of N without replacement, as tensors only.

The probability of an order c_1..c_K is the product over j of exp(z_cj) / sum of exp over the
candidates not yet chosen (HARR, arXiv 2602.03645, section 4; Gumbel-top-K: Kool et al. 2019).

The first ranks may be kept: they are the best candidates, and the product is over the later ranks only.
"""

import torch
from torch import Tensor

MASKED = -1e9
"""Logit of a padded candidate: never chosen, no gradient, and no NaN."""


LEVEL = 1e-4
"""Difference of two logits (nats) below which their candidates are tied: the precision of float32."""


def sample(logits_BN: Tensor, generator: torch.Generator, kept_B: Tensor | None = None) -> Tensor:
    """Draw a full order of the N candidates; its first K are an exact sample of K (Gumbel trick).

    The first ``kept_B`` candidates of each row stay first, in their order; None keeps none.

    Returns: order_BN, int64 positions in drawn order.

    >>> sample(torch.tensor([[0.0, 90.0, 50.0]]), torch.Generator().manual_seed(0))  # gaps that noise never bridges
    tensor([[1, 2, 0]])
    """
    uniform = torch.rand(logits_BN.shape, generator=generator, dtype=torch.float64)
    gumbel = -torch.log(-torch.log(uniform.clamp_min(1e-300)))
    keys_BN = logits_BN.double() + gumbel
    if kept_B is not None:
        keys_BN = keys_BN.masked_fill(_first(logits_BN, kept_B), torch.inf)
    return keys_BN.argsort(dim=-1, descending=True, stable=True)


def log_prob(logits_BN: Tensor, chosen_B: Tensor, kept_B: Tensor | None = None) -> Tensor:
    """Return the log-probability (nats) of choosing the first ``chosen_B`` candidates of each row, in order.

    Args:
        logits_BN: scores / temperature, chosen candidates first; padding holds ``MASKED``.
        chosen_B: number of chosen candidates in each row (int64).
        kept_B: number of them that were kept, not drawn; the probability is that of the others, given these. None: 0.

    >>> log_prob(torch.zeros(1, 3), torch.tensor([2])).exp()   # 1/3 * 1/2
    tensor([0.1667])
    """
    rest_BN = logits_BN.flip(-1).logcumsumexp(-1).flip(-1)
    counted_BN = _first(logits_BN, chosen_B)
    if kept_B is not None:
        counted_BN = counted_BN & ~_first(logits_BN, kept_B)
    return ((logits_BN - rest_BN) * counted_BN.to(logits_BN)).sum(-1)


def keeps(logits_BN: Tensor, kept_B: Tensor) -> Tensor:
    """Return whether the first ``kept_B`` candidates of each row are its best, in order.

    >>> keeps(torch.tensor([[2.0, 3.0, 1.0], [3.0, 1.0, 2.0]]), torch.tensor([1, 1]))
    tensor([False,  True])
    """
    best_BN = logits_BN.flip(-1).cummax(-1).values.flip(-1)
    return ((logits_BN >= best_BN - LEVEL) | ~_first(logits_BN, kept_B)).all(-1)


def _first(logits_BN: Tensor, counts_B: Tensor) -> Tensor:
    """Return which candidates are among the first ``counts_B`` of their row, (B, N)."""
    return torch.arange(logits_BN.shape[-1], device=logits_BN.device) < counts_B.to(logits_BN.device).unsqueeze(-1)


def entropy(logits_BN: Tensor) -> Tensor:
    """Return the entropy (nats) of the first pick.

    >>> round(entropy(torch.zeros(1, 4)).item(), 4)   # log 4
    1.3863
    """
    logs_BN = logits_BN.log_softmax(-1)
    return -(logs_BN.exp() * logs_BN).sum(-1)
