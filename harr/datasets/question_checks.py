"""Find questions that cannot be scored fairly: empty answers, gold that is not given, training that nearly is test."""

import unicodedata
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace
from math import ceil

from harr.characters import list_words, normalise
from harr.types import Question

ALIKE = 0.8
"""Minimum share of common words for which two questions are nearly the same."""


def says_nothing(answer: str) -> bool:
    """Return whether normalisation leaves nothing of an answer, so that an empty answer would be right.

    >>> says_nothing(""), says_nothing("The"), says_nothing("A 3")
    (True, True, False)
    """
    return not normalise(answer)


def with_sound_answers(questions: Iterable[Question]) -> tuple[list[Question], int]:
    """Return the questions without such empty answers (:func:`says_nothing`), and how many questions had one."""
    sound, changed = [], 0
    for question in questions:
        answers = tuple(answer for answer in question.answers if not says_nothing(answer))
        changed += len(answers) < len(question.answers)
        sound.append(question if len(answers) == len(question.answers) else replace(question, answers=answers))
    return sound, changed


def drop_missing_gold(
    splits: Mapping[str, Sequence[Question]], passages: Container[str]
) -> tuple[dict[str, list[Question]], dict[str, list[str]]]:
    """Return, by split, the questions whose gold passages all exist, and the ids of the others."""

    def is_whole(question: Question) -> bool:
        return all(pid in passages for pid in question.gold_ids)

    kept = {split: [q for q in rows if is_whole(q)] for split, rows in splits.items()}
    gone = {split: [q.id for q in rows if not is_whole(q)] for split, rows in splits.items()}
    return kept, {split: ids for split, ids in gone.items() if ids}


def count_ungiven(questions: Iterable[Question]) -> int:
    """Return the number of questions with a gold passage that is not among the given ones, where none can find it."""
    return sum(bool(q.candidate_ids) and not {*q.gold_ids} <= {*q.candidate_ids} for q in questions)


def find_near_duplicates(questions: Sequence[Question], others: Sequence[Question]) -> dict[str, str]:
    """Return the ids of questions that nearly equal one of the ``others``, with that one's id.

    They share ``ALIKE`` of their words, and an answer other than yes or no, or a gold passage. The search is exact:
    words are sorted by rarity, and two sets that overlap enough share one of their first few
    (prefix filtering: Chaudhuri et al. 2006; Bayardo et al. 2007, "Scaling up all pairs similarity search").

    >>> train = [Question("a", "Who in the town built the red bridge of Ashford?", ("Acme",))]
    >>> test = [Question("b", "Who built the red bridge of Ashford in the town, then?", ("acme",))]
    >>> find_near_duplicates(train, test)
    {'a': 'b'}
    """
    words = [[_words(q) for q in side] for side in (questions, others)]
    counts = Counter(word for side in words for bag in side for word in bag)
    postings: dict[str, list[int]] = {}
    for place, bag in enumerate(words[1]):
        for word in _rarest(bag, counts):
            postings.setdefault(word, []).append(place)
    near_ids: dict[str, str] = {}
    for question, bag in zip(questions, words[0], strict=True):
        near = sorted({place for word in _rarest(bag, counts) for place in postings.get(word, ())})
        for place in near:
            other = words[1][place]
            if len(bag & other) >= ALIKE * len(bag | other) and _same_answer(question, others[place]):
                near_ids[question.id] = others[place].id
                break
    return near_ids


def _rarest(words: frozenset[str], often: Counter[str]) -> list[str]:
    """Return the rarest words, of which two sets with an ``ALIKE`` overlap share at least one."""
    ordered = sorted(words, key=lambda word: (often[word], word))
    return ordered[: len(ordered) - ceil(ALIKE * len(ordered)) + 1]


def _words(question: Question) -> frozenset[str]:
    return frozenset(_fold(question.text).split())


def _same_answer(one: Question, other: Question) -> bool:
    mine, theirs = ({_fold(answer) for answer in q.answers} - {"", "yes", "no"} for q in (one, other))
    return bool(mine & theirs) or bool({*one.gold_ids} & {*other.gold_ids})


def _fold(text: str) -> str:
    return " ".join(list_words(unicodedata.normalize("NFKC", text)))
