"""PQN for a retriever of two towers (Q-RAG, arXiv 2511.07328; PQN, arXiv 2407.04811).

On-policy and without a replay buffer: the towers pick sentences by their values, lambda-returns of what they met
become targets, and both towers follow. Slowly moving copies of the adapters value the states (the targets).
Double Q by halves: each half of the vectors is a critic of half of the return.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from peft import PeftModel

from harr import processes
from harr.errors import ParamsError
from harr.methods import PQN
from harr.policies.adapter import add_adapter
from harr.policies.dense import unique
from harr.policies.towers import TowersPolicy
from harr.policies.value import rotate, soft_value, values
from harr.retrieval.encoder import Encoder
from harr.setup import Setup
from harr.train.advantages import lambda_returns
from harr.train.batch import reward_figures, rollouts, shares
from harr.train.learner import Learner
from harr.train.ppo import step_rewards
from harr.types import Episode, Log

LIVE, TARGET = "default", "target"
RANDOM = 1e6
"""A temperature at which the five best actions are equally likely."""


@dataclass(frozen=True)
class Pick:
    """One transition: what was seen, what was picked, where it stood, and the return to learn."""

    state: str
    action: str
    position: float
    target: float


class Companions(torch.nn.Module):
    """What is trained and kept beside the state tower's adapter: the action tower's, and the target copies of both.

    The tensors are those of the adapters themselves; this gathers them for the optimiser and the checkpoints.
    """

    def __init__(self, states: PeftModel, actions: PeftModel) -> None:
        super().__init__()
        for number, weight in enumerate(lora_weights(actions, LIVE)):
            self.register_parameter(f"action_{number}", weight)
        for number, weight in enumerate(lora_weights(states, TARGET) + lora_weights(actions, TARGET)):
            self.register_buffer(f"target_{number}", weight)


def train(params: PQN, setup: Setup, out: Path, work: Path, log: Log, seed: int) -> list[dict[str, float]]:
    """Train both towers of ``setup`` and write their adapters to ``out`` and ``out/action``; resumes as GRPO does.

    Raises:
        ParamsError: the pipeline does not pick from the question's own passages.
    """
    towers = setup.retriever
    if not isinstance(towers, TowersPolicy):
        raise ParamsError("train.method pqn plays pipeline pick with retriever.candidates: question; set both")
    handles = (_followed(towers.states, params, seed), _followed(towers.actions, params, seed + 1))
    companions = Companions(*handles)
    rate = params.learning_rate
    learner = Learner.open(params, setup, work, seed, kind="pqn", adapter=handles[0], head=companions, head_rate=rate)
    warmest = towers.temperature
    towers.actions.model = learner.accelerator.prepare_model(towers.actions.model, evaluation_mode=True)
    targets = replace(towers, vectors_of={})
    for step in learner.steps(log):
        cooled = max(params.final_temperature, 1.0 - step / params.steps) * warmest
        if step % params.checkpoint_every == 0:  # where a killed run would begin again
            towers.forget()
            targets.forget()
        towers.temperature = RANDOM if step < params.random_steps else cooled
        episodes = rollouts(params, setup, seed, step)
        scores = setup.reward.score(episodes)
        figures = reward_figures(params, setup, setup.reward.totals(scores, step), episodes, step)
        gains = step_rewards(setup.reward.parts(scores, episodes, step, by_step=True), episodes)
        with target_weights(handles):
            before = state_values(targets, episodes, cooled)
        picks = transitions(params, towers, episodes, gains, before)
        figures |= update(params, learner, towers, picks) | {"temperature": cooled}
        follow(handles, params.target_rate)
        learner.history.append(figures)
    return learner.export(out, also={"action": (handles[1], towers.actions)})


@torch.no_grad()
def _followed(encoder: Encoder, params: PQN, seed: int) -> PeftModel:
    """A fresh adapter, and a copy of it under the name ``TARGET`` that will follow it."""
    handle = add_adapter(encoder, rank=params.lora.rank, alpha=params.lora.alpha, seed=seed)
    handle.add_adapter(TARGET, handle.peft_config[LIVE])
    handle.set_adapter(LIVE)
    for copy, live in zip(lora_weights(handle, TARGET), lora_weights(handle, LIVE), strict=True):
        copy.copy_(live)
    encoder.model.eval()
    return handle


def lora_weights(handle: PeftModel, name: str) -> list[torch.nn.Parameter]:
    """The weights of one adapter, in a fixed order."""
    return [weight for path, weight in handle.named_parameters() if f".{name}." in path]


@contextmanager
def target_weights(handles: Sequence[PeftModel]) -> Iterator[None]:
    """Compute with the target copies, without gradient."""
    for handle in handles:
        handle.set_adapter(TARGET)
    try:
        with torch.no_grad():
            yield
    finally:
        for handle in handles:
            handle.set_adapter(LIVE)


@torch.no_grad()
def follow(handles: Sequence[PeftModel], rate: float) -> None:
    """Move the target copies a share ``rate`` of the way to what has been learnt (Polyak)."""
    for handle in handles:
        for copy, live in zip(lora_weights(handle, TARGET), lora_weights(handle, LIVE), strict=True):
            copy.lerp_(live, rate)


def state_values(targets: TowersPolicy, episodes: Sequence[Episode], temperature: float) -> list[list[float]]:
    """V of the state before every step of every episode, under the weights that are active."""
    steps = [step for episode in episodes for step in episode.steps]
    distinct, state_of = unique([step.retrieval.state for step in steps])
    vectors_UD = targets.encode_states(distinct)
    found = []
    for step, row in zip(steps, state_of.tolist(), strict=True):
        document = targets.document(step.search.question)
        picked = document.picked(step.search)
        critics_CN = targets.critics(vectors_UD[row], document, picked)
        found.append(float(soft_value(critics_CN[:, None], document.open(picked)[None], temperature)))
    flat = iter(found)
    return [[next(flat) for _ in episode.steps] for episode in episodes]


def transitions(
    params: PQN,
    towers: TowersPolicy,
    episodes: Sequence[Episode],
    gains: Sequence[Sequence[float]],
    before: Sequence[Sequence[float]],
) -> list[Pick]:
    """Every pick with the return to learn; with ``stop_at_gold`` an episode ends when all its gold is found."""
    picks = []
    for episode, rewards, worth in zip(episodes, gains, before, strict=True):
        length = _until_all_gold(episode) if params.stop_at_gold else len(episode.steps)
        returns = lambda_returns(rewards[:length], worth[:length], discount=params.discount, mix=params.return_mix)
        document = towers.document(episode.question)
        for step, wanted in zip(episode.steps, returns, strict=False):
            passage = step.retrieval.passages[0]
            position = towers.positions(document, document.picked(step.search))[document.place[passage.id]]
            picks.append(Pick(step.retrieval.state, passage.content, float(position), wanted))
    return picks


def _until_all_gold(episode: Episode) -> int:
    """After how many steps all gold has been picked; all steps where it never is."""
    missing = set(episode.question.gold_ids)
    for number, step in enumerate(episode.steps, start=1):
        missing -= {passage.id for passage in step.retrieval.passages}
        if not missing:
            return number
    return len(episode.steps)


def update(params: PQN, learner: Learner, towers: TowersPolicy, picks: Sequence[Pick]) -> dict[str, float]:
    """Move both critics of every pick towards half of its return each; one update."""
    learner.optimizer.zero_grad()
    states, state_of = unique([pick.state for pick in picks])
    sums = {"loss": 0.0, "value": 0.0, "return": sum(pick.target for pick in picks) / len(picks)}
    for first, end in shares(len(states), params.states_per_pass):
        rows = [(pick, row - first) for pick, row in zip(picks, state_of.tolist(), strict=True) if first <= row < end]
        actions, action_of = unique([pick.action for pick, _ in rows])
        states_BD = learner.vectors(states[first:end])[[row for _, row in rows]]
        actions_BD = towers.actions.forward(actions or [""])[action_of]
        position_B = torch.tensor([pick.position for pick, _ in rows], device=states_BD.device)
        target_B = torch.tensor([pick.target for pick, _ in rows], device=states_BD.device)
        critics_CB = values(states_BD, rotate(actions_BD, position_B)[:, None])[..., 0]
        loss = 0.5 * (2.0 * critics_CB - target_B).square().sum() / len(picks)
        learner.backward(loss)
        sums["loss"] += float(loss.detach())
        sums["value"] += float(critics_CB.detach().sum()) / len(picks)
    return {**processes.total(sums), "return": sums["return"]} | learner.update()
