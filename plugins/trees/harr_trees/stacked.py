"""Trees over the scores of an encoder trained by reward: stacked generalization (Wolpert 1992).

An encoder ranks the questions it learnt from better than others, so trees that learn from those trust it too much.
Therefore it is trained three times: on each half of the questions, to score the other half for the trees to learn from,
and on all of them, for the trees to play with.
"""

import shutil
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

from harr.builders.methods import Method
from harr.errors import ParamsError
from harr.io.files import SUMS, draft
from harr.params.train import ArmTrainParams, FunctionTrainParams, GRPOParams, PPOParams
from harr.rag.policies.dense import DensePolicy
from harr.rag.policies.encoder_adapter import LINK_FEATURES, load_adapter
from harr.rag.policies.link_features import LinkFeatures
from harr.rag.setup import Setup
from harr.train import grpo, ppo
from harr.types import Log
from harr_trees.boosted import check_gold, grow_trees, linked_policy, split_questions


def train(
    params: FunctionTrainParams, setup: Setup, out: Path, work: Path, log: Log, seed: int
) -> list[dict[str, Any]]:
    """Train the encoder as ``train.method`` of the run does, grow trees over its scores, and write both to ``out``.

    A row is a round of the trees (:func:`harr_trees.boosted.train`). The three trainings of the encoder are kept under
    ``work``, so an interrupted run continues with the next one.

    Raises:
        CorpusError: no question has gold among its candidates.
        ParamsError: there are no link features, or this is no arm of a run of ``grpo`` or ``ppo``.
    """
    run = params.run if isinstance(params, ArmTrainParams) else params
    if not isinstance(run, GRPOParams | PPOParams):
        raise ParamsError(
            "stacked grows trees over the encoder that train.method grpo or ppo trains; make it an arm of such a run"
        )
    policy = linked_policy(setup)
    questions, kept = split_questions(setup)
    first, second, every = questions[::2], questions[1::2], questions
    folders = {name: work / "stacked" / name for name in ("first_half", "second_half", "all")}
    for (name, folder), part in zip(folders.items(), (first, second, every), strict=True):
        game = replace(setup, questions=part, identity=f"{setup.identity} {name}", retriever=_begin(policy))
        if isinstance(run, GRPOParams):
            grpo.train(run, game, folder, work, log, seed)
        else:
            ppo.train(run, game, folder, work, log, seed)
    of_first, of_second, of_all = (_read(policy, folder) for folder in folders.values())
    taught = [(first, of_second), (second, of_first)]
    trees, history = grow_trees(run, setup, taught, (kept, of_all), log, seed)
    with draft(work / "trees", out) as folder:
        unread = shutil.ignore_patterns(SUMS, LINK_FEATURES)
        shutil.copytree(folders["all"], folder, ignore=unread, dirs_exist_ok=True)
        trees.save(folder)
    return history


def _begin(policy: DensePolicy) -> DensePolicy:
    """Return an untrained policy like this one, with its own encoder to train, whatever ``retriever.learns`` says."""
    assert policy.link_features
    term, encoder = LinkFeatures(policy.link_features.links, policy.temperature), deepcopy(policy.encoder)
    return replace(policy, encoder=encoder, link_features=term, query_adapter=None, frozen=False, _cache={})


def _read(policy: DensePolicy, folder: Path) -> DensePolicy:
    """Return a policy like this one with the encoder trained in ``folder``, now frozen."""
    encoder = deepcopy(policy.encoder)
    if adapter := load_adapter(encoder, folder):
        adapter.merge_and_unload()
    return replace(policy, encoder=encoder, sampling=None, query_adapter=None, frozen=True, _cache={})


METHOD = Method(train, check=check_gold)
