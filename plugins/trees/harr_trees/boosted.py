"""Boosted trees over the features of candidates: LambdaMART (LightGBM), the strongest simple baseline with links.

The encoder is not trained. In the first round gold passages are picked by score, in the second the trees of the first
round pick. The trees of a round learn to rank the candidates of every search, gold ones above the others (LambdaMART:
Burges, MSR-TR-2010-82). The number of trees is chosen on the validation questions, or on a tenth of the training
questions if there are none.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import lightgbm
import numpy as np
from numpy.typing import NDArray

from harr.builders.methods import Method
from harr.compute import distributed
from harr.errors import CorpusError, ParamsError
from harr.io.files import draft, write_json
from harr.io.progress import bar
from harr.params.train import FunctionTrainParams
from harr.params.train_facts import ValidatedParams
from harr.rag.policies.dense import DensePolicy
from harr.rag.policies.link_features import Candidates, Links
from harr.rag.rollout import play
from harr.rag.setup import Setup
from harr.rag.validation import Validation
from harr.types import Log, Question
from harr_trees.scorer import COLUMNS, Trees, describe_candidates

ROUNDS = 2
"""Number of rounds: gold passages are picked in the first, the trees pick in the others."""
TOGETHER = 256
"""Number of questions played at once."""
SETTINGS = {
    "objective": "lambdarank",
    "metric": "ndcg",
    "eval_at": [1, 5],
    "first_metric_only": True,
    "learning_rate": 0.05,
    "num_leaves": 31,
    "min_data_in_leaf": 20,
    "bagging_fraction": 0.8,
    "bagging_freq": 1,
    "feature_fraction": 0.8,
    "deterministic": True,
    "force_row_wise": True,
    "verbosity": -1,
}
"""Parameters of LightGBM."""
MAX_TREES, PATIENCE = 600, 50
"""Maximum number of trees, and number of trees without a validation gain after which growing stops."""


@dataclass
class Examples:
    """The candidates of many searches: ``tables`` are their columns, one table per search; ``labels`` are 1 for gold
    not yet picked."""

    tables: list[NDArray[np.float32]] = field(default_factory=list)
    labels: list[NDArray[np.int8]] = field(default_factory=list)

    def dataset(self, reference: Any = None) -> Any:
        """Return LightGBM's data set, without searches whose candidates have equal labels, which teach nothing."""
        parts = [
            (table, labels) for table, labels in zip(self.tables, self.labels, strict=True) if 0 < labels.mean() < 1
        ]
        if not parts:
            which, lost = ("training", "learnt") if reference is None else ("validation", "chosen by them")
            raise CorpusError(
                f"boosted: no search of the {which} questions had gold among its candidates, so nothing would be "
                f"{lost}; raise retriever.pool, add questions, or leave boosted out of evaluate.arms"
            )
        return lightgbm.Dataset(
            np.concatenate([table for table, _ in parts]),
            np.concatenate([labels for _, labels in parts]),
            group=[len(labels) for _, labels in parts],
            feature_name=list(COLUMNS),
            reference=reference,
            free_raw_data=False,
        )


@dataclass
class Recorder:
    """A ranking whose candidates are recorded: by ``trees`` or, without them, gold first."""

    links: Links
    gold: dict[str, int]
    """Id of a gold passage -> its row."""
    trees: Trees | None
    examples: Examples = field(default_factory=Examples)

    def score(self, candidates: Candidates) -> NDArray[np.float32]:
        """Return the scores, (B, N), and record the columns and labels of all candidates."""
        pool_BN, searches = candidates.pool_BN, candidates.searches
        gold_of = [[self.gold[pid] for pid in one.question.gold_ids if pid in self.gold] for one in searches]
        is_gold_BN = np.stack([np.isin(pool_N, rows) for pool_N, rows in zip(pool_BN, gold_of, strict=True)])
        table_BNC, size_B = describe_candidates(candidates), (pool_BN >= 0).sum(-1)
        for table_NC, is_gold_N, size in zip(table_BNC, is_gold_BN, size_B, strict=True):
            self.examples.tables.append(table_NC[:size])
            self.examples.labels.append(is_gold_N[:size].astype(np.int8))
        if self.trees:
            return self.trees.score(candidates)
        return candidates.cosines_BN + 4 * is_gold_BN.astype(np.float32)  # above the range of a cosine


Part = tuple[Sequence[Question], DensePolicy]
"""Questions, and the policy whose encoder scores their candidates."""


def train(
    params: FunctionTrainParams, setup: Setup, out: Path, work: Path, log: Log, seed: int
) -> list[dict[str, Any]]:
    """Grow trees from gold passages and write them to ``out``; takes minutes, so an interrupted run starts again.

    A row is a round; its ``reward_mean`` is that of the episodes the trees learnt from.

    Raises:
        CorpusError: no question has gold among its candidates.
        ParamsError: there are no link features.
    """
    policy = linked_policy(setup)
    taught, kept = split_questions(setup)
    policy = replace(policy, sampling=None, frozen=True)
    trees, history = grow_trees(params, setup, [(taught, policy)], (kept, policy), log, seed)
    with draft(work / "trees", out) as folder:
        trees.save(folder)
        write_json(folder / "harr.json", {"base": policy.encoder.identity, "base_model": policy.encoder.name})
    return history


def linked_policy(setup: Setup) -> DensePolicy:
    """Return the policy of ``setup`` if it ranks by link features.

    Raises:
        ParamsError: it does not.
    """
    policy = setup.policy
    if not isinstance(policy, DensePolicy) or policy.link_features is None:
        raise ParamsError("boosted ranks by the features of retriever.link_features; set that, or leave boosted out")
    return policy


def split_questions(setup: Setup) -> tuple[list[Question], list[Question]]:
    """Return the questions that trees learn from, and those that their number is chosen on.

    Raises:
        CorpusError: at most one question has gold, and there is no validation.
    """
    questions = [question for question in setup.questions if question.gold_ids]
    if setup.validation:
        return questions, list(setup.validation)
    taught = [question for place, question in enumerate(questions) if place % 10]
    if not taught:
        raise CorpusError(
            "boosted: one training question with gold passages is too few, since the number of trees is chosen on others "
            "than they learn from; add questions, or leave boosted out of evaluate.arms"
        )
    return taught, questions[::10]


def grow_trees(
    params: ValidatedParams, setup: Setup, taught: Sequence[Part], kept: Part, log: Log, seed: int
) -> tuple[Trees, list[dict[str, Any]]]:
    """Return trees that learn from the searches of ``taught``, their number chosen by ``kept``, and a row per round.

    The validation plays the policy of ``kept``.
    """
    served = kept[1]
    assert served.link_features
    links = served.link_features.links
    validation = Validation.of(params.validation.every, replace(setup, retriever=served), log)
    if validation:
        validation.begin()
    learn_from, choose_by, history = Examples(), Examples(), []
    trees: Trees | None = None
    for step in range(ROUNDS):
        began = time.perf_counter()
        rewards = [
            reward
            for questions, policy in taught
            for reward in _record(setup, policy, questions, trees, learn_from, f"round {step + 1}")
        ]
        _record(setup, served, kept[0], trees, choose_by, "validation")
        served.link_features = trees = Trees(links, _grow(learn_from, choose_by, seed))
        row = {
            "step": step,
            "reward_mean": fmean(rewards),
            "zero_std_share": 0.0,
            "searches": float(len(learn_from.tables)),
            "trees": float(trees.booster.num_trees()),
            "seconds": time.perf_counter() - began,
        }
        if validation:
            validation.enter(row, last=step + 1 == ROUNDS)
        log(step, {name: value for name, value in row.items() if isinstance(value, float)})
        history.append(row)
    assert trees
    return trees, history


def check_gold(questions: Sequence[Question]) -> None:
    """Check that some question has a gold passage.

    Raises:
        CorpusError: none has.
    """
    if not any(question.gold_ids for question in questions):
        raise CorpusError(
            f"boosted: none of {len(questions)} training questions has gold passages, so nothing would be learnt; leave "
            "boosted out of evaluate.arms, or choose another train.method"
        )


def describe(params: FunctionTrainParams) -> dict[str, str]:
    """Describe the training for the model card and the report."""
    return {
        "method": "boosted (LambdaMART by LightGBM, from gold passages)",
        "trees": f"{MAX_TREES} at most, chosen on validation",
        "learning rate": f"{SETTINGS['learning_rate']:g}",
    }


def _record(
    setup: Setup, policy: DensePolicy, questions: Sequence[Question], trees: Trees | None, examples: Examples, name: str
) -> list[float]:
    """Play questions by the trees, or gold first without them; record what was ranked, and return the rewards."""
    ids = {pid for question in questions for pid in question.gold_ids}
    assert policy.link_features
    recorder = Recorder(policy.link_features.links, policy.passages.rows_of(ids), trees, examples)
    retriever = replace(policy, link_features=recorder)
    rewards: list[float] = []
    with bar(total=len(questions), desc=f"boosted, {name}", unit="question", visible=distributed.is_main()) as progress:
        for first in range(0, len(questions), TOGETHER):
            episodes = play(questions[first : first + TOGETHER], setup.pipeline, retriever, setup.generator)
            rewards += setup.reward.totals(setup.reward.score(episodes), 0)
            progress.update(len(episodes))
    return rewards


def _grow(examples: Examples, choose_by: Examples, seed: int) -> Any:
    """Return LightGBM's trees, as many as rank the candidates of ``choose_by`` best."""
    taught = examples.dataset()
    stop = lightgbm.early_stopping(PATIENCE, first_metric_only=True, verbose=False)
    valid = choose_by.dataset(reference=taught)
    booster = lightgbm.train({**SETTINGS, "seed": seed}, taught, MAX_TREES, valid_sets=[valid], callbacks=[stop])
    return lightgbm.Booster(model_str=booster.model_to_string(num_iteration=booster.best_iteration))


METHOD = Method(train, describe=describe, rewarded=False, check=check_gold)
