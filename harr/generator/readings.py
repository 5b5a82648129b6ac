"""Reading examples: what a language model should answer from passages, or that they do not tell.

They train the reader of pipeline ``pick`` before the retriever learns from its answers. Every training question is
shown with its gold passages, filled up with wrong ones, and some questions again with gold missing. A wrong passage
is given with the question, or is another question's gold passage that shares many of its words.
"""

import random
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from harr.characters import states_answer
from harr.corpus.passages import Passages
from harr.errors import CorpusError
from harr.rag.pipelines.pick import reading_request
from harr.types import Passage, Question

UNKNOWN = "unknown"
"""What pipeline pick's prompt asks the reader to write if the passages do not tell."""
WRONG_EVERY = 3
"""One in this many questions is shown again with gold missing: a reader that sees more of these gives up early."""
LOOKED_AT = 200
"""Maximum number of other questions' gold passages that are compared with a question's words."""


def make_readings(questions: Sequence[Question], passages: Passages, shown: int, seed: int) -> list[dict[str, Any]]:
    """Return conversations, ``{"messages": [...]}``, each with ``shown`` passages, or as many as there are.

    Raises:
        CorpusError: no question has both answers and gold passages.
    """
    rng = random.Random(seed)
    known = [question for question in questions if question.answers and question.gold_ids]
    if not known:
        raise CorpusError(
            "generator.warmstart.demonstrations gold: no training question has both answers and supporting passages; "
            "name a file of demonstrations, or a model that reads well as it is"
        )
    rows = passages.rows_of({pid for question in known for pid in (*question.gold_ids, *question.candidate_ids)})
    by_id = dict(zip(rows, passages.take(list(rows.values())), strict=True))
    golds = sorted({pid for question in known for pid in question.gold_ids})
    words_of = cache(lambda pid: frozenset(by_id[pid].content.lower().split()))
    readings = []
    for number, question in enumerate(known):
        gold, wrong = list(question.gold_ids), _wrong_ids(question, words_of, golds, rng)
        kinds = [gold + wrong]
        if number % WRONG_EVERY == 0 and wrong:
            rng.shuffle(gold)
            kinds.append(gold[: rng.randrange(len(gold))] + wrong)
        for ids in kinds:
            cut = ids[:shown]
            rng.shuffle(cut)
            readings.append(_reading(question, [by_id[pid] for pid in cut]))
    return readings


def _wrong_ids(
    question: Question, words_of: Callable[[str], frozenset[str]], golds: Sequence[str], rng: random.Random
) -> list[str]:
    """Return ids of passages that are not gold for a question, those most easily mistaken for gold first."""
    given = [pid for pid in question.candidate_ids if pid not in question.gold_ids]
    if given:
        return rng.sample(given, len(given))
    words = {*question.text.lower().split()}
    others = [pid for pid in rng.sample(golds, min(LOOKED_AT, len(golds))) if pid not in question.gold_ids]
    return sorted(others, key=lambda pid: -len(words & words_of(pid)))


def _reading(question: Question, passages: Sequence[Passage]) -> dict[str, Any]:
    """Return a conversation that ends with the first answer if the passages tell it, otherwise with ``UNKNOWN``.

    They tell it if all gold is among them, or if they state an answer (:func:`states_answer`).
    """
    ids, text = {passage.id for passage in passages}, "\n".join(passage.content for passage in passages)
    is_told = ids.issuperset(question.gold_ids) or states_answer(text, question.answers)
    answer = question.answers[0] if is_told else UNKNOWN
    request, _ = reading_request(question, passages)
    return {"messages": [*map(dict, request.messages), {"role": "assistant", "content": answer}]}
