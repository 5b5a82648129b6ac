"""What all comparisons share: workloads that take turns, a row of the page, and the machine's limit."""

import time
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

import torch
from sentence_transformers import SentenceTransformer

Runs = dict[str, list[float]]


def taking_turns(
    works: Mapping[str, Callable[[], object]], times: int, clock: Callable[[], float] = time.process_time
) -> Runs:
    """Return the CPU seconds of every workload, in ``times`` rounds after a warm-up."""
    seconds: Runs = {name: [] for name in works}
    for number in range(times + 1):
        for name, work in works.items():
            began = clock()
            work()
            if number:
                seconds[name].append(clock() - began)
    return seconds


def row(what: str, runs: Runs, *, ours: str, peer: str, unit: str, count: float, limit: float) -> dict[str, Any]:
    """Return a row of the page: the speed relative to the peer, speeds, and the share of the limit."""
    ratios = [other / own for own, other in zip(runs[ours], runs[peer], strict=True)]
    speed = count / median(runs[ours])
    return {
        "what": what,
        "peer": peer,
        "ratio": [round(value, 2) for value in (median(ratios), min(ratios), max(ratios))],
        "speed": round(speed),
        "peer_speed": round(count / median(runs[peer])),
        "unit": unit,
        "limit": round(limit),
        "share": round(speed / limit, 2) if limit else None,
        "rounds": len(ratios),
    }


def layer_weights(model: SentenceTransformer) -> int:
    """Return the number of weights that are multiplied with every token."""
    linear = [part for part in model.modules() if isinstance(part, torch.nn.Linear)]
    return sum(part.weight.numel() for part in linear if part.weight.shape[0] > 1) - 384 * 384  # without the pooler


def flops() -> float:
    """Return floating point operations per CPU second of bfloat16 products shaped like MiniLM's layers."""
    rows_TI, weight_OI = torch.randn(4096, 384).bfloat16(), torch.randn(1536, 384).bfloat16()
    seconds = taking_turns({"product": lambda: torch.nn.functional.linear(rows_TI, weight_OI)}, 20)["product"]
    return 2.0 * rows_TI.numel() * len(weight_OI) / min(seconds)
