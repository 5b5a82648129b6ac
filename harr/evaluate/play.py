"""The playing of arms: every question greedily, or several times by chance."""

import math
from collections.abc import Sequence

import torch

from harr.evaluate.summary import Row
from harr.io.progress import bar
from harr.rag.policies.dense import DensePolicy
from harr.rag.rollout import play
from harr.rag.scoring.ranking import all_gold
from harr.rag.scoring.terms import answer_em
from harr.types import Episode, Generator, Pipeline, Question, Retriever


def run_arm(
    questions: Sequence[Question],
    pipeline: Pipeline,
    generator: Generator | None,
    retriever: Retriever,
    *,
    batch_size: int,
    desc: str,
) -> list[Episode]:
    """Play all questions with one retriever, ``batch_size`` at a time; one episode each, in order."""
    episodes: list[Episode] = []
    with bar(total=len(questions), desc=desc, unit="question") as progress:
        for start in range(0, len(questions), batch_size):
            batch = questions[start : start + batch_size]
            episodes += play(batch, pipeline, retriever, generator)
            progress.update(len(batch))
    return episodes


def pass_rates(
    questions: Sequence[Question],
    pipeline: Pipeline,
    generator: Generator | None,
    retriever: DensePolicy,
    *,
    samples: int,
    ks: Sequence[int],
    seed: int,
) -> dict[str, Row]:
    """pass@k per question id: the chance that one of k sampled episodes is right, from ``samples`` of them.

    Right means an exactly matching answer or, where the pipeline gives none, all gold passages found.
    """
    retriever.sampling = torch.Generator().manual_seed(seed)
    episodes = play([q for q in questions for _ in range(samples)], pipeline, retriever, generator, desc="pass@k")
    retriever.sampling = None
    right = answer_em if any(episode.answer is not None for episode in episodes) else all_gold
    counts = {q.id: sum(right(e) == 1.0 for e in episodes[i * samples :][:samples]) for i, q in enumerate(questions)}
    return {name: {f"pass_at_{k}": pass_at(samples, hits, k) for k in ks} for name, hits in counts.items()}


def pass_at(samples: int, right: int, k: int) -> float:
    """Unbiased estimate of pass@k: 1 - C(n - c, k) / C(n, k) (arXiv 2107.03374, eq. 1).

    >>> [pass_at(4, 1, k) for k in (1, 2, 4)]
    [0.25, 0.5, 1.0]
    """
    return 1.0 - math.comb(samples - right, k) / math.comb(samples, k)
