"""Reward terms. The same functions are the reward in training and the metrics in evaluation."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import pairwise

from harr.errors import CorpusError, ParamsError
from harr.scoring.ranking import all_gold, recall
from harr.scoring.text import exact_match, token_f1
from harr.types import Episode, Outcome, Term


def answer_f1(episode: Episode) -> float | None:
    """Token F1 of the final answer; 0.0 if the pipeline gave none, None without gold answers."""
    if not episode.question.answers:
        return None
    return 0.0 if episode.answer is None else token_f1(episode.answer, episode.question.answers)


def answer_em(episode: Episode) -> float | None:
    """Exact match of the final answer; 0.0 if the pipeline gave none, None without gold answers."""
    if not episode.question.answers:
        return None
    return 0.0 if episode.answer is None else exact_match(episode.answer, episode.question.answers)


TERMS: dict[str, Term] = {"answer_f1": answer_f1, "answer_em": answer_em, "recall": recall, "all_gold": all_gold}
"""Names for ``reward.terms``. Whether a term applies depends on the question alone, not on the play."""


def prefix_gains(term: Term, episode: Episode) -> list[float]:
    """What each step added to ``term``: one value per step, S in all.

    The term is read on the first 0, 1, ..., S steps; only the whole episode has its final answer.
    The gains sum to the term's final value minus its value without any step. Where the term does
    not apply every gain is 0.

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


def weighted(terms: Mapping[str, float]) -> Callable[[Episode], float]:
    """Make one reward of named terms: the sum of weight times value.

    Where a term does not apply to a question, the weights of the others grow so that their absolute
    sum stays the same: rewards of all questions share one scale.

    >>> from harr.types import Question
    >>> reward = weighted({"answer_f1": 1.0, "recall": 0.5})
    >>> reward(Episode(Question("q", "Who?", answers=("Ada",)), (), Outcome("Ada Brown")))  # 1.5 * F1 2/3
    1.0

    Raises:
        ParamsError: an unknown term, a weight that is no number, or no weight other than 0.
        CorpusError: by the reward, where no term applies to the question.
    """
    unknown = [name for name in terms if name not in TERMS]
    if unknown:
        raise ParamsError(f"reward.terms: unknown term {', '.join(unknown)}; known terms: {', '.join(TERMS)}")
    if not all(math.isfinite(weight) for weight in terms.values()) or not any(terms.values()):
        raise ParamsError(f"reward.terms: weights must be finite and not all 0 (found {dict(terms)})")
    used = [(TERMS[name], weight) for name, weight in terms.items() if weight]
    whole = sum(abs(weight) for _, weight in used)

    def reward(episode: Episode) -> float:
        values = [(term(episode), weight) for term, weight in used]
        applying = [(value, weight) for value, weight in values if value is not None]
        if not applying:
            raise CorpusError(
                f"question {episode.question.id}: no reward term applies ({', '.join(terms)}); "
                "it lacks gold answers or gold passages: drop it or add a term to reward.terms"
            )
        return sum(value * weight for value, weight in applying) * whole / sum(abs(weight) for _, weight in applying)

    return reward
