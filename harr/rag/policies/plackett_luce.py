"""Plackett-Luce: an ordered choice of K out of N without replacement, as tensors only.

The probability of an order c_1..c_K is the product over j of exp(z_cj) / sum of exp over the
candidates not yet chosen (HARR, arXiv 2602.03645, section 4; Gumbel-top-K: Kool et al. 2019).
"""

import torch
from torch import Tensor

MASKED = -1e9
"""Logit of a padded candidate: never chosen, no gradient, and no NaN."""


def sample(logits_BN: Tensor, generator: torch.Generator) -> Tensor:
    """Draw a full order of the N candidates; its first K are an exact sample of K (Gumbel trick).

    Returns: order_BN, int64 positions in drawn order.

    >>> sample(torch.tensor([[0.0, 90.0, 50.0]]), torch.Generator().manual_seed(0))  # gaps that noise never bridges
    tensor([[1, 2, 0]])
    """
    uniform = torch.rand(logits_BN.shape, generator=generator, dtype=torch.float64)
    gumbel = -torch.log(-torch.log(uniform.clamp_min(1e-300)))
    return (logits_BN.double() + gumbel).argsort(dim=-1, descending=True, stable=True)


def log_prob(logits_BN: Tensor, chosen_B: Tensor) -> Tensor:
    """Return the log-probability (nats) of choosing the first ``chosen_B`` candidates of each row, in order.

    Args:
        logits_BN: scores / temperature, chosen candidates first; padding holds ``MASKED``.
        chosen_B: how many were chosen in each row (int64).

    >>> log_prob(torch.zeros(1, 3), torch.tensor([2])).exp()   # 1/3 * 1/2
    tensor([0.1667])
    """
    rest_BN = logits_BN.flip(-1).logcumsumexp(-1).flip(-1)
    positions_N = torch.arange(logits_BN.shape[-1], device=logits_BN.device)
    counted_BN = positions_N < chosen_B.to(logits_BN.device).unsqueeze(-1)
    return ((logits_BN - rest_BN) * counted_BN.to(logits_BN)).sum(-1)


def entropy(logits_BN: Tensor) -> Tensor:
    """Return the entropy (nats) of the first pick.

    >>> round(entropy(torch.zeros(1, 4)).item(), 4)   # log 4
    1.3863
    """
    logs_BN = logits_BN.log_softmax(-1)
    return -(logs_BN.exp() * logs_BN).sum(-1)
