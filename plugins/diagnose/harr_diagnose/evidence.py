"""Figures behind the causes: leaked questions, false negatives, general queries and how far vectors moved."""

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from harr_people.grammar import sentences

from harr.characters import list_words, states_answer
from harr.corpus.passages import Passages
from harr.datasets.question_checks import ALIKE, find_near_duplicates
from harr.rag.policies.dense import DensePolicy
from harr.types import Passage, Question, Retriever, Search

TOGETHER = 100
"""Number of searches made at a time."""


def count_leaked(train: Sequence[Question], test: Sequence[Question]) -> int:
    """Return how many test questions are, or nearly are, a training question (:attr:`Question.identity`).

    >>> train = [Question("a", "Who built the bridge?", ("Acme",))]
    >>> count_leaked(train, [Question("b", "who built the bridge", ("Ada",)), Question("c", "Who built the mill?")])
    1
    """
    known = {question.identity for question in train}
    same = {question.id for question in test if question.identity in known}
    return len(same | find_near_duplicates(test, train).keys())


def find_false_negatives(
    searches: Sequence[Search], first: Retriever, second: Retriever | None, pool: int
) -> float | None:
    """Return the share of questions with a candidate that is not gold but as right as the gold; None without gold.

    It nearly repeats the words of a gold passage, or ``second`` ranks it above all gold. If a gold passage states an
    answer, it does too.

    ``searches`` are those of training; the candidates are the ``pool`` nearest passages by ``first``.
    """
    gold = {pid for search in searches for pid in search.question.gold_ids}
    if not gold:
        return None
    deep = [Search(s.question, s.query, s.hops, s.exclude_ids, k=pool) for s in searches]
    candidates, others = (_find(deep, one) if one else [()] * len(deep) for one in (first, second))
    passages = {passage.id: passage for ranked in (*candidates, *others) for passage in ranked}
    found: dict[str, bool] = {}
    for search, near, ranked in zip(deep, candidates, others, strict=True):
        question = search.question
        if question.gold_ids:
            own = [passages[pid] for pid in question.gold_ids if pid in passages]
            again = found.get(question.id, False)
            found[question.id] = again or any(is_as_right(question, own, passage, ranked) for passage in near)
    return sum(found.values()) / len(found)


def is_as_right(question: Question, gold: Sequence[Passage], passage: Passage, ranked: Sequence[Passage]) -> bool:
    """Return whether a passage that is not gold is as right as the ``gold`` passages, by another ranking of them all.

    >>> question, gold = Question("q", "Who built it?", ("Acme",), ("g",)), [Passage("g", "Acme built the old mill.")]
    >>> twin, other = Passage("t", "The old mill Acme built."), Passage("o", "Acme was sold.")
    >>> is_as_right(question, gold, twin, []), is_as_right(question, gold, other, [*gold, other])
    (True, False)
    >>> is_as_right(question, gold, other, [other, *gold])
    True
    """
    documents = question.gold_documents
    if passage.document in documents:
        return False
    stating = [one for one in gold if states_answer(one.content, question.answers)]
    if stating and not states_answer(passage.content, question.answers):
        return False
    order = [one.document for one in ranked]
    best = next((place for place, name in enumerate(order) if name in documents), len(order))
    above = bool(stating) and passage.document in order[:best]
    return above or any(_are_alike(one, passage) for one in stating or gold)


def _are_alike(one: Passage, other: Passage) -> bool:
    """Return whether two passages share most of the words of their texts, titles apart."""
    ours, theirs = ({*list_words(passage.text)} for passage in (one, other))
    return len(ours & theirs) >= ALIKE * len(ours | theirs)


def _find(searches: Sequence[Search], retriever: Retriever) -> list[tuple[Passage, ...]]:
    starts = range(0, len(searches), TOGETHER)
    return [one.passages for start in starts for one in retriever.retrieve(searches[start : start + TOGETHER])]


def general_queries(corpus: Path, count: int, seed: int) -> list[Question]:
    """Return up to ``count`` passages as questions: the title if no other passage has it, or the first sentence."""
    passages = Passages.open(corpus)
    rows = passages.searchable_rows().tolist()
    drawn = passages.take(sorted(random.Random(f"{seed}/general").sample(rows, min(count, len(rows)))))
    titles = passages.titles
    named = titles.filter(pc.is_in(titles, value_set=pa.array([passage.title for passage in drawn], pa.string())))
    shared = {title for title, times in Counter(named.to_pylist()).items() if times > 1} | {""}
    return [
        Question(
            passage.id,
            sentences(passage.text)[0] if passage.title in shared else passage.title,
            gold_ids=(passage.id,),
        )
        for passage in drawn
    ]


def recall_rows(questions: Sequence[Question], retriever: Retriever, k: int) -> list[dict[str, Any]]:
    """Return a row per question with the share of its gold documents among the first ``k`` passages of one search."""
    found = _find([Search(question, question.text, k=k) for question in questions], retriever)
    rows: list[dict[str, Any]] = []
    for question, passages in zip(questions, found, strict=True):
        gold = {*question.gold_documents}
        recall = len(gold & {passage.document for passage in passages}) / len(gold)
        rows.append({"id": question.id, "gold": sorted(gold), "recall": recall})
    return rows


def mean_cosine(searches: Sequence[Search], before: DensePolicy, after: DensePolicy) -> float:
    """Return the mean cosine between the vectors of the same searches before and after training."""
    states = sorted(set(after.write_states(searches)[0]))
    return float(np.mean(np.sum(before.encode(states) * after.encode(states), axis=1)))
