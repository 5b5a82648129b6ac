"""InfoNCE, the supervised baseline that `trained` is compared with (arXiv 1807.03748).

It has the RL run's questions, rollouts and number of updates, but the gradient comes from labels: every state moves
towards the first gold passage that its episode had not found yet, and away from the gold passages of the step's other
questions (in-batch negatives) and from the nearest passages of its own search that are not gold (hard negatives, as in
DPR, arXiv 2004.04906). For a question without gold, as in DPR, candidates that state one of its answers are positives.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from harr.characters import statable_answers, states_answer
from harr.compute import distributed
from harr.corpus.passages import Passages
from harr.errors import CorpusError
from harr.params.train import InfoNCEParams, PolicyParams
from harr.rag.policies.dense import unique
from harr.rag.retrieval.hybrid import pad
from harr.rag.setup import Setup
from harr.train.batch import StateFeatures, StepRollouts, features_by_state, play_step, shares
from harr.train.learner import Learner
from harr.types import Episode, Log, Question

Positives = Sequence[Sequence[Sequence[str]]]
"""Ids of the positives by episode and step, in order."""


WARM_START = "warm_start"
"""The folder of the adapter after its warm start, inside the trained adapter's folder."""
BEFORE_REWARDS = -1.0
"""The phase of a warm start: its rewards are not compared with later ones."""


def check_labels(questions: Sequence[Question], remedy: str = "leave infonce out of evaluate.arms") -> None:
    """Refuse questions if none of them can have a positive.

    Raises:
        CorpusError: none has a gold passage, or an answer that a passage can state.
    """
    if not any(question.gold_ids or statable_answers(question.answers) for question in questions):
        raise CorpusError(
            f"infonce: none of {len(questions)} training questions has gold passages, or an answer other than yes and "
            f"no that a passage could state, so nothing would be learnt; {remedy}"
        )


def train(params: PolicyParams, setup: Setup, out: Path, work: Path, log: Log, seed: int) -> list[dict[str, float]]:
    """Train the retriever of ``setup`` on gold passages and write its adapter to ``out``; resumes as GRPO does.

    ``answer_positives`` counts the states of questions without gold, whose positive states an answer.

    Raises:
        CorpusError: no question has gold or an answer to look for, or ``checkpoints.window`` steps found no positive.
    """
    check_labels(setup.questions)
    labelled = [question for question in setup.questions if question.gold_ids or question.answers]
    setup = replace(setup, questions=labelled)  # questions with only notes are for another method
    params = params.of_infonce()
    learner = Learner.open(params, setup, work, seed, kind="infonce")
    for step in learner.steps(log):
        learner.history.append(learn(params, setup, learner, seed, step))
        _check_positives(learner.history, params.checkpoints.window)
    return learner.export(out)


def rewarded_steps(params: PolicyParams, setup: Setup, learner: Learner, seed: int, log: Log) -> Iterator[StepRollouts]:
    """Run the steps of ``train.warm_start``, then yield the rollouts of each later step, numbered from 0.

    After each, ``learner.history`` must have one more row.
    """
    for number in learner.steps(log):
        if number < params.warm_start:
            warm_up(params, setup, learner, seed, number)
        else:
            yield play_step(params, setup, seed, number - params.warm_start)


def warm_up(params: PolicyParams, setup: Setup, learner: Learner, seed: int, step: int) -> None:
    """Run one step of ``train.warm_start``; after the last one, save the adapter for the arm ``warm_start``.

    Raises:
        CorpusError: no question has gold or an answer to look for.
    """
    if step == 0:
        check_labels(setup.questions, remedy="set train.warm_start: 0")
    learner.history.append(learn(params, setup, learner, seed, step) | {"phase": BEFORE_REWARDS})
    if step + 1 == params.warm_start:
        learner.save_copy(WARM_START)


def learn(params: PolicyParams, setup: Setup, learner: Learner, seed: int, step: int) -> dict[str, Any]:
    """Play a step's rollouts, learn from their positives, and return the step's figures."""
    played = play_step(params, setup, seed, step)
    episodes, values = played.episodes, played.figures
    positive_ids = positives(episodes, learner.dense.passages)
    targets = first_missing(episodes, positive_ids)
    if targets:
        context = (groups_of(episodes, positive_ids), pools_of(episodes), features_by_state(episodes))
        for _ in range(params.num_iterations):
            values |= update(params, params.infonce, learner, targets, *context)
    gold = {step.retrieval.state for episode in episodes if episode.question.gold_ids for step in episode.steps}
    counts = {"distinct_states": len(targets), "answer_positives": len(targets.keys() - gold)}
    return values | {name: float(count) for name, count in counts.items()}


def positives(episodes: Sequence[Episode], passages: Passages) -> Positives:
    """Return the positives of each search: the gold passages in hop order.

    For a question without gold: the candidates that state one of its answers, in pool order.
    """
    unlabelled = [episode for episode in episodes if not episode.question.gold_ids]
    rows = sorted({row for episode in unlabelled for step in episode.steps for row in step.retrieval.pool})
    passage_of = dict(zip(rows, passages.take(rows), strict=True))

    @cache
    def states(row: int, answers: tuple[str, ...]) -> bool:
        return states_answer(passage_of[row].content, answers)

    def list_positives(question: Question, pool: Sequence[int]) -> Sequence[str]:
        if question.gold_ids:
            return question.gold_ids
        return [passage_of[row].id for row in pool if states(row, question.answers)]

    return [[list_positives(episode.question, step.retrieval.pool) for step in episode.steps] for episode in episodes]


def first_missing(episodes: Sequence[Episode], positive_ids: Positives) -> dict[str, str]:
    """Return state -> id of its first positive that earlier searches had not found.

    A search counts as finding one gold passage: others in its results stay targets. If it missed its gold but was
    answered nevertheless, the episode continues from a wrong answer: gold cannot label its later queries, which are
    left out.
    """
    targets: dict[str, str] = {}
    for episode, by_step in zip(episodes, positive_ids, strict=True):
        found_ids: set[str] = set()
        for number, (step, ids) in enumerate(zip(episode.steps, by_step, strict=True)):
            missing = [pid for pid in ids if pid not in found_ids]
            if missing:
                targets.setdefault(step.retrieval.state, missing[0])
            retrieved = {passage.id for passage in step.retrieval.passages}
            new_ids = [pid for pid in missing if pid in retrieved]
            found_ids.update(new_ids[:1] if episode.question.gold_ids else new_ids)
            answered = any(hop.status == "FOUND" for hop in episode.outcome.hops[number : number + 1])
            if episode.question.gold_ids and answered and not new_ids:
                break
    return targets


def groups_of(episodes: Sequence[Episode], positive_ids: Positives) -> list[tuple[str, ...]]:
    """Return all positives of each question: passages that are not negatives of each other."""
    groups: dict[str, dict[str, None]] = {}
    for episode, by_step in zip(episodes, positive_ids, strict=True):
        groups.setdefault(episode.question.id, {}).update(dict.fromkeys(chain.from_iterable(by_step)))
    return [tuple(group) for group in groups.values()]


def _check_positives(history: Sequence[dict[str, float]], window: int) -> None:
    """Stop a run whose first ``window`` steps had no positive."""
    if len(history) == window and not any(row["distinct_states"] for row in history):
        raise CorpusError(
            f"infonce: in {window} steps no pool held a passage that states an answer, so nothing is learnt; raise "
            "retriever.pool, or leave infonce out of evaluate.arms"
        )


def pools_of(episodes: Sequence[Episode]) -> dict[str, tuple[int, ...]]:
    """Return the candidate rows of each state, the chosen ones first."""
    pools: dict[str, tuple[int, ...]] = {}
    for episode in episodes:
        for step in episode.steps:
            pools.setdefault(step.retrieval.state, step.retrieval.pool)
    return pools


def update(
    params: PolicyParams,
    contrast: InfoNCEParams,
    learner: Learner,
    targets: Mapping[str, str],
    groups: Sequence[Sequence[str]],
    pools: Mapping[str, Sequence[int]],
    features: StateFeatures,
    weights: Mapping[str, float] | None = None,
) -> dict[str, float]:
    """Take one optimizer step on the mean cross-entropy over all distinct states, optionally weighted."""
    learner.optimizer.zero_grad()
    policy, states = learner.dense, sorted(targets, key=len)  # a pass of similar lengths pads little
    temperature = contrast.temperature or policy.temperature
    golds, _ = unique([pid for group in groups for pid in group])
    rows = policy.passages.rows_of(golds)
    allowed_UG = _allow_negatives(states, targets, golds, groups)
    gold_rows = set(rows.values())
    hard_UN = pad(
        [[row for row in pools[state] if row not in gold_rows][: contrast.hard_negatives] for state in states]
    )
    rows_UM = np.hstack([np.array([[rows[pid] for pid in golds]] * len(states)), hard_UN])
    weight_U = torch.tensor([weights[state] if weights else 1.0 for state in states])
    total = 0.0
    for first, end in shares(len(states), params.states_per_pass):
        part = states[first:end]
        states_UD = learner.vectors(part)
        scores_UM = policy.scores(states_UD, torch.arange(len(part)), rows_UM[first:end]) / temperature
        scores_UM = scores_UM + learner.term(features, part, rows_UM[first:end])
        hidden_UM = torch.from_numpy(np.hstack([~allowed_UG[first:end], hard_UN[first:end] < 0])).to(states_UD.device)
        labels = [golds.index(targets[state]) for state in part]  # none if this process's share is empty
        label_U = torch.tensor(labels, dtype=torch.long, device=states_UD.device)
        masked_UM = scores_UM.masked_fill(hidden_UM, float("-inf"))
        loss_U = torch.nn.functional.cross_entropy(masked_UM, label_U, reduction="none")
        loss = (loss_U * weight_U[first:end].to(loss_U)).sum()
        learner.backward(loss / len(states))
        total += float(loss.detach())
    return distributed.total({"loss": total / len(states)}) | learner.update()


def _allow_negatives(
    states: Sequence[str], targets: Mapping[str, str], golds: Sequence[str], groups: Sequence[Sequence[str]]
) -> NDArray[np.bool_]:
    """Return which gold passages each state is compared with: its own, and those of questions without that one."""
    kin: dict[str, set[str]] = {}
    for group in groups:
        for pid in group:
            kin.setdefault(pid, set()).update(group)
    return np.array([[pid == targets[state] or pid not in kin[targets[state]] for pid in golds] for state in states])
