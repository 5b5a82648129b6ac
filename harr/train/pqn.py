"""PQN for a two-tower retriever (Q-RAG, arXiv 2511.07328; PQN, arXiv 2407.04811).

On-policy and without a replay buffer: the towers pick sentences by their values, lambda-returns become targets, and
both towers are updated. Slowly moving copies of the trained weights (target networks) value the states.
Double Q by halves: each half of the vectors is a critic that learns half of the return.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from harr.compute import distributed
from harr.compute.tensors import trained_weights
from harr.embed.encoder import Encoder
from harr.errors import ParamsError
from harr.params.train import PQNParams
from harr.rag.policies.dense import unique
from harr.rag.policies.encoder_adapter import begin
from harr.rag.policies.q_values import rotate, soft_value, values
from harr.rag.policies.sentence_vectors import Sentences
from harr.rag.policies.two_tower import TwoTowerPolicy
from harr.rag.setup import Setup
from harr.train.advantages import lambda_returns
from harr.train.batch import play_step, rate_share, shares
from harr.train.learner import Learner
from harr.train.ppo import step_rewards
from harr.types import Episode, Log

COOLEST = 0.1
"""Final share of ``retriever.temperature`` if it falls linearly."""
RANDOM, GREEDY = math.inf, 1e-6
"""Temperatures at which all actions are equally likely, and at which the soft maximum is the maximum."""


@dataclass(frozen=True)
class Transition:
    """A state, the picked text, its position, and the return to learn."""

    state: str
    action: str
    position: float
    target: float


class Tower:
    """The trained part of one encoder, an adapter or its layers, and a copy that follows it slowly (the target)."""

    def __init__(self, encoder: Encoder, params: PQNParams, seed: int) -> None:
        self.encoder = encoder
        self.trained = begin(encoder, params.lora, seed)
        self.live: list[Tensor] = list(trained_weights(self.trained).values())
        self.copy = [weight.detach().clone() for weight in self.live]

    def swap(self) -> None:
        """Swap the encoder's live weights and their copy; a second call restores them."""
        for live, copy in zip(self.live, self.copy, strict=True):
            live.data, copy.data = copy.data, live.data

    @torch.no_grad()
    def polyak_update(self, rate: float) -> None:
        """Move the copy by the share ``rate`` of the way to the live weights (Polyak)."""
        for live, copy in zip(self.live, self.copy, strict=True):
            copy.lerp_(live, rate)


class TargetState(torch.nn.Module):
    """All weights but the state tower's: those of the action tower, and both towers' target copies.

    The tensors belong to the towers; this module gathers them for the optimizer and the checkpoints.
    """

    def __init__(self, states: Tower, actions: Tower) -> None:
        super().__init__()
        for number, (_, weight) in enumerate(trained_weights(actions.trained).items()):
            self.register_parameter(f"action_{number}", weight)
        for number, copy in enumerate(states.copy + actions.copy):
            self.register_buffer(f"target_{number}", copy)


def train(params: PQNParams, setup: Setup, out: Path, work: Path, log: Log, seed: int) -> list[dict[str, float]]:
    """Train both towers of ``setup`` and write them to ``out`` and ``out/action``; resumes as GRPO does.

    Raises:
        ParamsError: the pipeline does not pick from the question's own passages.
    """
    towers = setup.retriever
    if not isinstance(towers, TwoTowerPolicy):
        raise ParamsError("train.method pqn plays pipeline pick with retriever.candidates: question; set both")
    states, actions = Tower(towers.states, params, seed), Tower(towers.actions, params, seed + 1)
    trained, head, rate = states.trained, TargetState(states, actions), params.optimizer.learning_rate
    learner = Learner.open(params, setup, work, seed, kind="pqn", adapter=trained, head=head, head_rate=rate)
    learner.saves_when_stopped = False  # a resumed run would have other cached vectors
    warmest = towers.temperature
    towers.actions.model = learner.accelerator.prepare_model(towers.actions.model, evaluation_mode=True)
    targets = replace(towers, sentences=Sentences())
    for step in learner.steps(log):
        temperature = temperature_share(params, step) * warmest
        if step % params.checkpoints.every == 0:  # where a killed run would resume
            towers.invalidate()
            targets.invalidate()
        towers.temperature = RANDOM if step < params.random_steps else temperature
        towers.draw = targets.draw = (seed, step)  # random positions differ between episodes of a question
        played = play_step(params, setup, seed, step)
        episodes, figures = played.episodes, played.figures
        rewards_by_step = step_rewards(setup.reward.parts(played.scores, episodes, step, by_step=True), episodes)
        with target_weights(states, actions):
            values_before = state_values(targets, episodes, temperature)
        picks = transitions(params, towers, episodes, rewards_by_step, values_before)
        figures |= update(params, learner, towers, picks) | {"temperature": temperature}
        picked_texts = [pick.action for pick in picks]  # their vectors changed most
        towers.invalidate(picked_texts)
        targets.invalidate(picked_texts)
        for tower in (states, actions):
            tower.polyak_update(params.target_rate)
        learner.history.append(figures)
    return learner.export(out, also={"action": (actions.trained, towers.actions)}, facts=towers.facts)


def temperature_share(params: PQNParams, step: int) -> float:
    """Return the share of ``retriever.temperature`` at a step, which falls linearly or with the learning rate.

    >>> temperature_share(PQNParams(method="pqn", steps=10), 4)
    0.6
    """
    if params.cooling == "rate":
        return rate_share(params, step)
    return max(COOLEST, 1.0 - step / params.steps)


@contextmanager
def target_weights(*towers: Tower) -> Iterator[None]:
    """Compute with the target copies, without gradient."""
    for tower in towers:
        tower.swap()
    try:
        with torch.no_grad():
            yield
    finally:
        for tower in towers:
            tower.swap()


def state_values(targets: TwoTowerPolicy, episodes: Sequence[Episode], temperature: float) -> list[list[float]]:
    """Return V of the state before every step of every episode, under the active weights."""
    steps = [step for episode in episodes for step in episode.steps]
    distinct, state_of = unique([step.retrieval.state for step in steps])
    vectors_UD = targets.encode_states(distinct)
    documents = targets.prepare_documents([step.search.question for step in steps])
    flat_values = []
    for step, document, row in zip(steps, documents, state_of.tolist(), strict=True):
        picked = document.picked(step.search)
        critics_CN = targets.critics(vectors_UD[row], document, picked)
        flat_values.append(float(soft_value(critics_CN[:, None], document.available(picked)[None], temperature)))
    flat = iter(flat_values)
    return [[next(flat) for _ in episode.steps] for episode in episodes]


def transitions(
    params: PQNParams,
    towers: TwoTowerPolicy,
    episodes: Sequence[Episode],
    rewards_by_step: Sequence[Sequence[float]],
    values_before: Sequence[Sequence[float]],
) -> list[Transition]:
    """Return every pick with the return to learn.

    With ``stop_at_gold`` an episode ends once all its gold is found, unless it was played to an answer.
    """
    picks = []
    for episode, rewards, values_S in zip(episodes, rewards_by_step, values_before, strict=True):
        stops_early = params.stop_at_gold and episode.answer is None
        length = _count_steps_to_gold(episode) if stops_early else len(episode.steps)
        returns = lambda_returns(
            rewards[:length], values_S[:length], discount=params.discount, lambda_=params.return_mix
        )
        document = towers.document(episode.question)
        for step, target in zip(episode.steps, returns, strict=False):
            if not step.retrieval.passages:
                continue
            passage = step.retrieval.passages[0]
            position = towers.positions(document, document.picked(step.search))[document.place[passage.id]]
            picks.append(Transition(step.retrieval.state, passage.content, float(position), target))
    return picks


def _count_steps_to_gold(episode: Episode) -> int:
    """Return the number of steps until all gold is picked; that of all steps if it never is, or there is none."""
    missing = gold = set(episode.question.gold_ids)
    for number, step in enumerate(episode.steps, start=1):
        missing = missing - {passage.id for passage in step.retrieval.passages}
        if gold and not missing:
            return number
    return len(episode.steps)


def update(
    params: PQNParams, learner: Learner, towers: TwoTowerPolicy, picks: Sequence[Transition]
) -> dict[str, float]:
    """Move each of the two critics of every pick towards half of its return, in one update."""
    learner.optimizer.zero_grad()
    states, state_of = unique([pick.state for pick in picks])
    sums = {"loss": 0.0, "value": 0.0, "return": sum(pick.target for pick in picks) / len(picks)}
    for first, end in shares(len(states), params.states_per_pass):
        rows = [(pick, row - first) for pick, row in zip(picks, state_of.tolist(), strict=True) if first <= row < end]
        actions, action_of = unique([pick.action for pick, _ in rows])
        states_BD = learner.vectors(states[first:end])[[row for _, row in rows]]
        actions_BD = towers.actions.forward(actions or [""], prompt=towers.actions.passage_prompt)[action_of]
        position_B = torch.tensor([pick.position for pick, _ in rows], device=states_BD.device)
        target_B = torch.tensor([pick.target for pick, _ in rows], device=states_BD.device)
        critics_CB = values(states_BD, rotate(actions_BD, position_B)[:, None], towers.scale)[..., 0]
        loss = 0.5 * (2.0 * critics_CB - target_B).square().sum() / len(picks)
        learner.backward(loss)
        totals = torch.stack([loss.detach(), critics_CB.detach().sum()]).tolist()
        sums["loss"] += totals[0]
        sums["value"] += totals[1] / len(picks)
    return {**distributed.total(sums), "return": sums["return"]} | learner.update()
