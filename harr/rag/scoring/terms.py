"""Reward terms. The same functions are the reward in training and the metrics in evaluation."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise

from harr.rag.scoring.ranking import (
    all_gold,
    best_reciprocal_rank,
    ndcg_at,
    recall,
    recall_at,
    reciprocal_rank,
    success_at,
)
from harr.rag.scoring.text import exact_match, rouge_l, substring_match, token_f1
from harr.types import Episode, Outcome, Term


def answer_f1(episode: Episode) -> float | None:
    """Return token F1 of the final answer; 0.0 if the pipeline gave none, None without gold answers."""
    if not episode.question.answers:
        return None
    return 0.0 if episode.answer is None else token_f1(episode.answer, episode.question.answers)


def semantic_f1(episode: Episode) -> float | None:
    """Return the substitute for a missing graded judge: answer F1, 0.0 for an invalid search graph."""
    score = answer_f1(episode)
    return 0.0 if score is not None and episode.outcome.graph else score


def answer_em(episode: Episode) -> float | None:
    """Return the exact match of the final answer; 0.0 if the pipeline gave none, None without gold answers."""
    if not episode.question.answers:
        return None
    return 0.0 if episode.answer is None else exact_match(episode.answer, episode.question.answers)


def substring_em(episode: Episode) -> float | None:
    """Return 1.0 if the normalised answer contains a gold answer or is contained in one."""
    if not episode.question.answers:
        return None
    return substring_match(episode.answer or "", episode.question.answers)


def rouge(episode: Episode) -> float | None:
    """Return ROUGE-L of the first 128 characters of the answer; None without gold answers."""
    if not episode.question.answers:
        return None
    return rouge_l(episode.answer or "", episode.question.answers)


def format_reward(episode: Episode) -> float | None:
    """Return the share of the model's turns that are well-formed (``Outcome.faults``), 0.0 if it never searched.

    For search graphs, the term ``graph`` says whether they are valid. None if the pipeline does not check the form of
    turns.
    """
    outcome = episode.outcome
    if not outcome.turns:
        return None
    return 1.0 - len(outcome.faults) / outcome.turns if episode.steps or outcome.graph is not None else 0.0


def strict_format(episode: Episode) -> float | None:
    """Return 1.0 if every turn is well-formed (:func:`format_reward`), else 0.0, as in R-Search."""
    share = format_reward(episode)
    return None if share is None else float(share == 1.0)


def valid_graph(episode: Episode) -> float | None:
    """Return 1.0 if the model wrote a valid search graph, else 0.0 (see ``Outcome.graph``); None without graphs."""
    return None if episode.outcome.graph is None else float(not episode.outcome.graph)


def length(episode: Episode) -> float:
    """Return the cost of answer length: -1 per 20 words."""
    return -len((episode.answer or "").split()) / 20


def search_cost(episode: Episode) -> float:
    """Return the cost of searching: -1 per search."""
    return -float(len(episode.steps))


def context_words(episode: Episode) -> int:
    """Return the number of words in all retrieved passages, repeats included."""
    return sum(len(p.content.split()) for step in episode.steps for p in step.retrieval.passages)


def context_length(episode: Episode) -> float:
    """Return the cost of reading: -1 per 100 words of passages (:func:`context_words`)."""
    return -context_words(episode) / 100


def reader_status(episode: Episode) -> list[float] | None:
    """Return the reader's status per step: FOUND 1, AMBIGUOUS .5, NOT_FOUND or nothing 0.

    None if no hop has a status: search_r1, r_search and pick give none.
    """
    if episode.outcome.hops and not any(hop.status for hop in episode.outcome.hops):
        return None
    statuses = [hop.status for hop in episode.outcome.hops[: len(episode.steps)]]
    statuses += [""] * (len(episode.steps) - len(statuses))
    return [STATUS_VALUES.get(status, 0.0) for status in statuses]


def novelty(episode: Episode) -> list[float]:
    """Return per step the share of its passages that no earlier step of the episode had returned."""
    seen: set[str] = set()
    shares = []
    for step in episode.steps:
        ids = [passage.id for passage in step.retrieval.passages]
        shares.append(sum(pid not in seen for pid in ids) / max(1, len(ids)))
        seen.update(ids)
    return shares


def misses(episode: Episode) -> list[float] | None:
    """Return per step 1.0 if it found no new gold document; a negative weight charges extra steps.

    None for a question without gold.
    """
    missing = set(episode.question.gold_documents)
    if not missing:
        return None
    values = []
    for step in episode.steps:
        new = missing & {passage.document for passage in step.retrieval.passages}
        values.append(float(not new))
        missing -= new
    return values


def completion(episode: Episode) -> list[float] | None:
    """Return per step the reward for finding the last gold passage: 1 without superfluous picks, else less (Q-RAG).

    With n gold passages found after m picks it is .5 + .5 n / m; every other step gets 0. None without gold.

    >>> from harr.types import Passage, Question, Retrieval, Search, Step
    >>> question = Question("q", "Who?", gold_ids=("a", "b"))
    >>> found = [Step(Search(question, "Who?"), Retrieval((Passage(name, ""),))) for name in ("a", "x", "y", "b", "z")]
    >>> completion(Episode(question, tuple(found)))
    [0.0, 0.0, 0.0, 0.75, 0.0]
    """
    missing = gold = set(episode.question.gold_documents)
    if not gold:
        return None
    values = []
    for number, step in enumerate(episode.steps, start=1):
        before, missing = missing, missing - {passage.document for passage in step.retrieval.passages}
        values.append(0.5 + 0.5 * len(gold) / number if before and not missing else 0.0)
    return values


def hop_gold(episode: Episode) -> list[float] | None:
    """Return per step 1.0 if the gold document of its own hop is among its passages; 0.0 beyond the gold.

    For questions whose gold is in hop order (``Question.gold_ids``); None for one without gold.

    >>> from harr.types import Passage, Question, Retrieval, Search, Step
    >>> question = Question("q", "Who?", gold_ids=("a", "b"))
    >>> found = [Step(Search(question, "Who?"), Retrieval((Passage(name, ""),))) for name in ("a", "a", "b")]
    >>> hop_gold(Episode(question, tuple(found)))
    [1.0, 0.0, 0.0]
    """
    gold = episode.question.gold_documents
    if not gold:
        return None
    gold_by_step = [*gold, *[""] * len(episode.steps)]
    return [
        float(document in {passage.document for passage in step.retrieval.passages})
        for step, document in zip(episode.steps, gold_by_step, strict=False)
    ]


STATUS_VALUES = {"FOUND": 1.0, "AMBIGUOUS": 0.5}
TERMS: dict[str, Term] = {
    "answer_f1": answer_f1,
    "answer_em": answer_em,
    "substring_em": substring_em,
    "rouge_l": rouge,
    "recall": recall,
    "all_gold": all_gold,
    "mrr": best_reciprocal_rank,
    **{f"recall_at_{k}": partial(recall_at, k=k) for k in (2, 5, 10)},
    "success_at_5": partial(success_at, k=5),
    "ndcg_at_10": partial(ndcg_at, k=10),
    "reciprocal_rank": reciprocal_rank,
    "format": format_reward,
    "format_strict": strict_format,
    "graph": valid_graph,
    "length": length,
    "search_cost": search_cost,
    "context_length": context_length,
    "semantic_f1": semantic_f1,
}
"""Names for ``reward.terms``. Whether a term applies depends on question and pipeline alone, not on the episode."""
StepTerm = Callable[[Episode], list[float] | None]
STEP_TERMS: dict[str, StepTerm] = {
    "reader_status": reader_status,
    "novelty": novelty,
    "misses": misses,
    "hop_gold": hop_gold,
    "completion": completion,
}
"""Process rewards: one value per step."""


def prefix_gains(term: Term, episode: Episode) -> list[float]:
    """Return the gain of each step in ``term``: one value per step, S in all.

    The term is evaluated on the first 0, 1, ..., S steps; only the whole episode has its final answer. The gains sum to
    the term's final value minus its value without any step. If the term does not apply, every gain is 0.

    >>> from harr.types import Passage, Question, Retrieval, Search, Step
    >>> question = Question("q", "Who?", gold_ids=("a", "b"))
    >>> found = [Step(Search(question, "Who?"), Retrieval((Passage(name, ""),))) for name in ("a", "x", "b")]
    >>> prefix_gains(recall, Episode(question, tuple(found)))
    [0.5, 0.0, 0.5]
    """
    count = len(episode.steps)
    prefixes = [replace(episode, steps=episode.steps[:end], outcome=Outcome()) for end in range(count)]
    values = [term(prefix) or 0.0 for prefix in (*prefixes, episode)]
    return [after - before for before, after in pairwise(values)]
