"""LRAT: contrastive learning from agents' choices (arXiv 2604.04949), a rival of learning by reward.

Published: in an agent's search, the document that it opens is the positive; those that it saw and did not open, and the
positives of other searches, are negatives; the InfoNCE loss is weighted by how long the agent reasoned over the opened
document. No gold is read.

Here nothing is opened and rollouts are sampled: the same rollouts, rewards and credit as for ``trained``. The positive
of a state is the passage whose choice there had the highest mean advantage over the group, if that is above 0, and this
advantage is the weight. Negatives are passages of the pool that no rollout gained by, and those that other questions
gained by.
"""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from harr.builders.methods import Method, describe_steps
from harr.params.train import FunctionTrainParams, InfoNCEParams
from harr.rag.setup import Setup
from harr.train import infonce
from harr.train.advantages import NEGLIGIBLE
from harr.train.batch import features_by_state
from harr.train.grpo import advantages_of
from harr.train.learner import Learner
from harr.types import Episode, Log
from harr_lm_supervision.policy import SupervisedParams, SupervisionParams, policy_of


class LratParams(InfoNCEParams, SupervisionParams):
    """Settings of LRAT (``settings``)."""


class LratPolicy(SupervisedParams):
    """Parameters of an LRAT run."""

    own: LratParams


def train(
    section: FunctionTrainParams, setup: Setup, out: Path, work: Path, log: Log, seed: int
) -> list[dict[str, float]]:
    """Train the retriever of ``setup`` on the choices of good rollouts and write its adapter to ``out``; resumes."""
    params = policy_of(LratPolicy, section)
    learner = Learner.open(params, setup, work, seed, kind="lrat")
    for played in infonce.rewarded_steps(params, setup, learner, seed, log):
        episodes, values = played.episodes, played.figures
        advantages = advantages_of(params, setup.reward, played.scores, episodes, played.step)
        targets, weights, groups = preferred(episodes, advantages)
        if targets:
            pools, known = infonce.pools_of(episodes), features_by_state(episodes)
            for _ in range(params.num_iterations):
                values |= infonce.update(params, params.own, learner, targets, groups, pools, known, weights)
        learner.history.append(values | {"distinct_states": float(len(targets))})
    return learner.export(out)


def preferred(
    episodes: Sequence[Episode], advantages: Sequence[Sequence[float]]
) -> tuple[dict[str, str], dict[str, float], list[tuple[str, ...]]]:
    """Return state -> id of its positive, state -> weight (mean 1), and the passages that each question gained by.

    The positive of a state is the passage with the highest mean advantage among the rollouts that chose it, if above 0.
    """
    earned_by_state: dict[tuple[str, str], dict[str, list[float]]] = {}
    for episode, by_step in zip(episodes, advantages, strict=True):
        for step, advantage in zip(episode.steps, by_step, strict=True):
            earned = earned_by_state.setdefault((episode.question.id, step.retrieval.state), {})
            for passage in step.retrieval.passages:
                earned.setdefault(passage.id, []).append(advantage)
    targets: dict[str, str] = {}
    weights: dict[str, float] = {}
    gained: dict[str, dict[str, None]] = {}
    for (question, state), earned in earned_by_state.items():
        means = {pid: fmean(values) for pid, values in earned.items()}
        better = [pid for pid in means if means[pid] > NEGLIGIBLE]
        if better:
            targets[state] = max(better, key=means.__getitem__)
            weights[state] = means[targets[state]]
            gained.setdefault(question, {}).update(dict.fromkeys(better))
    mean = fmean(weights.values()) if weights else 1.0
    return targets, {state: weight / mean for state, weight in weights.items()}, [tuple(ids) for ids in gained.values()]


METHOD = Method(
    train,
    describe=lambda params: describe_steps(policy_of(LratPolicy, params)) | {"method": "LRAT"},
    settings=LratParams,
)
