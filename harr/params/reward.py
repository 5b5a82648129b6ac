"""Section ``reward`` of params.yaml, and the weights of its terms."""

from itertools import pairwise
from typing import Annotated, Literal

from pydantic import AfterValidator, Discriminator, Field, Tag, model_validator

from harr.params.fields import PathOrName, Section, is_dotted
from harr.params.generator import LocalParams, ServedParams, Untaught
from harr.params.measures import MEASURES, of_metrics
from harr.params.servers import ServerName


class WeightParams(Section):
    """Weight of a reward term, and the training steps ``start`` <= step < ``end`` in which it counts."""

    weight: float
    """Factor of the term's value in the reward."""
    start: int = Field(0, ge=0)
    """First training step in which the weight counts."""
    end: int | None = Field(None, ge=1)
    """Training step from which the weight no longer counts; with null it counts to the end."""

    @model_validator(mode="after")
    def _ends_after_its_start(self) -> "WeightParams":
        if self.end is not None and self.end <= self.start:
            raise ValueError(f"a weight that starts at step {self.start} cannot end at step {self.end}; raise end")
        return self


class RerankerParams(Section):
    """A reranker: a server with Cohere's ``/rerank``, such as vLLM, or a cross-encoder of sentence-transformers."""

    server: ServerName | None = None
    """Server, asked at its address + /rerank, by its name in section servers; with null the model is loaded here."""
    model: PathOrName
    """Name of the model on the server (published: Qwen/Qwen3-Reranker-4B); if it is loaded here, folder or hub name of
    a cross-encoder."""


SEMANTIC, UNJUDGED = "semantic", "semantic_f1"
"""A term that a judge grades, and its substitute without a judge."""


Weight = Annotated[
    Annotated[float, Tag("(number)")]
    | Annotated[WeightParams, Tag("(weight)")]
    | Annotated[tuple[WeightParams, ...], Tag("(list)")],
    Discriminator(
        lambda value: {dict: "(weight)", WeightParams: "(weight)", list: "(list)", tuple: "(list)"}.get(
            type(value), "(number)"
        )
    ),
]
Terms = dict[str, Weight]
"""Reward terms by name: a weight, or several, each for its own steps."""


def _one_at_a_time(terms: Terms) -> Terms:
    """Check that no two weights of a term count in the same step, and return the terms by metric name.

    >>> _one_at_a_time({"nDCG@10": 1.0})
    {'ndcg_at_10': 1.0}
    >>> _one_at_a_time({"graph": (WeightParams(weight=0.4, end=30), WeightParams(weight=0.25, start=29))})
    Traceback (most recent call last):
    ...
    ValueError: graph has two weights at step 29; let one end where the next starts
    """
    terms = of_metrics(terms)
    for name, weights in terms.items():
        if weights == ():
            raise ValueError(f"{name} has an empty list of weights; give at least one")
        steps = weights if isinstance(weights, tuple) else ()
        for one, two in pairwise(sorted(steps, key=lambda weight: weight.start)):
            if one.end is None or two.start < one.end:
                raise ValueError(f"{name} has two weights at step {two.start}; let one end where the next starts")
    return terms


TERM_SHAPE = "takes an Episode and returns a finite number, a list of one per step, or None where it does not apply"
"""What a term from another package does."""
RELEVANCE = "relevance"
"""The term that a reranker scores."""


TERM_NAMES = (
    "answer_f1", "answer_em", "substring_em", "rouge_l", "recall", "all_gold", "mrr", "format", "format_strict",
    *MEASURES, "graph", "length", "search_cost", "context_length", UNJUDGED, "reader_status", "novelty", "misses",
    "hop_gold", "completion", "judge", SEMANTIC, "answer_similarity", RELEVANCE,
)  # fmt: skip
"""The names allowed in ``reward.terms``, besides functions (``harr/rag/scoring/reward.py``)."""


OF_ANSWERS = (
    "answer_f1", "answer_em", "substring_em", "rouge_l", UNJUDGED, "judge", SEMANTIC, "answer_similarity",
)  # fmt: skip
"""The terms that compare the final answer with gold answers."""


OF_GOLD = ("recall", "all_gold", "mrr", *MEASURES, "misses", "hop_gold", "completion")
"""The terms that compare what was found with gold passages."""


COSTS = ("length", "search_cost", "context_length")
"""The terms whose values are at most 0."""


def check_terms(terms: Terms, mix: str, *, judged: bool) -> None:
    """Check that terms can form a reward.

    Raises:
        ValueError: a term is unknown, or given twice; all weights are 0; a judge is missing, or has nothing to judge;
            or ``mix`` l2 would meet a negative reward.
    """
    weights = {
        name: [w if isinstance(w, float) else w.weight for w in _several(given)] for name, given in terms.items()
    }
    every = [weight for several in weights.values() for weight in several]
    if unknown := [name for name in terms if name not in TERM_NAMES and not is_dotted(name)]:
        raise ValueError(
            f"unknown term {unknown[0]} in terms; known: {', '.join(TERM_NAMES)}, or package.module:function"
        )
    if not any(every):
        raise ValueError(f"terms: weights must be not all 0 (found {every})")
    if judged != bool({"judge", SEMANTIC} & set(terms)) and (judged or "judge" in terms):
        raise ValueError(
            f"judge is asked by the terms judge and {SEMANTIC} only; add one of them to terms, or leave judge out"
            if judged
            else "the term judge needs a model; give reward.judge"
        )
    if not judged and {SEMANTIC, UNJUDGED} <= set(terms):
        raise ValueError(f"without reward.judge the term {SEMANTIC} is {UNJUDGED}; leave one of them out")
    for name, several in weights.items() if mix == "l2" else ():
        if any(weight > 0 if name in COSTS else weight < 0 for weight in several):
            raise ValueError(
                f"mix l2 takes rewards of at least 0 and positive weights; leave {name} out, or set another mix"
            )


def _several(weights: float | WeightParams | tuple[WeightParams, ...]) -> tuple[float | WeightParams, ...]:
    return weights if isinstance(weights, tuple) else (weights,)


def metric_name(term: str, *, judged: bool) -> str:
    """Return the metric name of a term: without a judge ``semantic`` is answer F1, and named so.

    >>> metric_name("semantic", judged=True), metric_name("semantic", judged=False), metric_name("graph", judged=False)
    ('semantic', 'semantic_f1', 'graph')
    """
    return UNJUDGED if term == SEMANTIC and not judged else term


class RewardParams(Section):
    """Weighted terms by name (``harr/rag/scoring/terms.py``) or as ``package.module:function``, and how they mix."""

    terms: Annotated[Terms, AfterValidator(_one_at_a_time)] = Field({"answer_f1": 1.0}, min_length=1)
    """Weights of the terms by name; ranking measures may have their ir-measures names (``nDCG@10``); a list of weights
    gives each its own training steps."""
    judge: Annotated[ServedParams | LocalParams, Field(discriminator="kind"), Untaught] | None = None
    """Model that grades answers for the terms ``judge`` and ``semantic``; without one ``semantic`` is answer F1, and
    named so."""
    reranker: RerankerParams | None = None
    """Model that scores passages for the term ``relevance``."""
    mix: Literal["weighted", "sum", "uniform", "std", "pca", "l2"] = "weighted"
    """How groups combine several rewards into one: each normalised in its group, then weighted and summed (weighted),
    or mixed first and then normalised (``harr/rag/scoring/scalarize.py``)."""
    filter_by_mean: bool = False
    """Whether only rollouts count that are on the same side of their group's mean in every term."""

    @model_validator(mode="after")
    def _can_be_scored(self) -> "RewardParams":
        check_terms(self.terms, self.mix, judged=self.judge is not None)
        return self

    @model_validator(mode="after")
    def _relevance_is_of_a_reranker(self) -> "RewardParams":
        if RELEVANCE in self.terms and self.reranker is None:
            raise ValueError(
                f"the term {RELEVANCE} is the score of a reranker; give reward.reranker, or name reader_status, what "
                f"the reader says of its passages, which was called {RELEVANCE} before"
            )
        if self.reranker and RELEVANCE not in self.terms:
            raise ValueError(f"reranker is asked by the term {RELEVANCE} only; add it to terms, or leave reranker out")
        return self
