"""Conversations as questions: every turn with gold, together with the turns before it.

``download: {dataset: function, function: "harr_conversations.data:DATASET", settings: {...}}`` reads files of them.
"""

import random
from collections.abc import Iterator, Sequence
from itertools import accumulate, chain
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from harr.builders.trained import conversation
from harr.datasets import Dataset
from harr.datasets.local import passage_of
from harr.datasets.source import Source
from harr.errors import CorpusError
from harr.io.jsonl import CONTROL, Row, read_rows
from harr.params.download import QuestionsParams
from harr.params.fields import NonEmpty, PathOrName
from harr.serve.bodies import SearchBody, refusal
from harr.types import Hop, Question

REWRITE = "rewrite"
"""Note of a question: the turn in words that need no history."""


class ConversationsParams(QuestionsParams):
    """Files of passages and conversations (``download.settings``)."""

    passages: NonEmpty[PathOrName]
    """Files with the passages of the corpus, as for dataset jsonl."""
    train: NonEmpty[PathOrName]
    """Files with conversations for training."""
    test: NonEmpty[PathOrName]
    """Files with conversations for testing."""
    validation: tuple[PathOrName, ...] = ()
    """Files with conversations for validation; if empty, whole ones are drawn from those for training, until they have
    validation_questions turns."""


def load(params: ConversationsParams) -> Source:
    """Open files of passages and conversations; no conversation is in two splits."""
    train, test = (_read(paths) for paths in (params.train, params.test))
    apart = _read(params.validation)
    if not apart:
        train, apart = set_apart(train, params.validation_questions)
    return Source(
        passages=(passage_of(row) for path in params.passages for row in read_rows(Path(path))),
        train=chain.from_iterable(train),
        test=chain.from_iterable(test),
        validation=chain.from_iterable(apart) if apart else None,
    )


DATASET = Dataset(load, lambda params: f"the files {', '.join(params.passages)}", settings=ConversationsParams)


def _read(paths: Sequence[str]) -> list[list[Question]]:
    return [questions_of(row) for path in paths for row in read_rows(Path(path))]


def set_apart(conversations: Sequence[list[Question]], count: int) -> tuple[list[list[Question]], list[list[Question]]]:
    """Return the conversations that stay, and whole ones, drawn at random, with at least ``count`` questions in all.

    Raises:
        CorpusError: none would stay.
    """
    order = random.Random("validation").sample(range(len(conversations)), len(conversations))
    before = accumulate((len(conversations[place]) for place in order), initial=0)
    drawn = {place for place, sum_before in zip(order, before, strict=False) if sum_before < count}
    if count and len(drawn) == len(conversations):
        raise CorpusError(
            f"download.validation_questions {count} leaves none of {len(conversations)} training conversations; lower "
            "it, or add conversations"
        )
    kept = [one for place, one in enumerate(conversations) if place not in drawn]
    return kept, [conversations[place] for place in sorted(drawn)]


def questions_of(row: Row) -> list[Question]:
    """Return the turns of a conversation that have gold as questions; the others are only history for later ones.

    A conversation is ``{id?, turns: [{question, answer?, supporting?, kind?, rewrite?}]}``, or ``{id?, messages,
    supporting}`` with OpenAI's messages and a list of gold for each user message.

    Raises:
        CorpusError: something cannot be read; the message names its place.
    """
    name = row.text("id", "conversation") if "id" in row.values else row.place
    history: tuple[Hop, ...] = ()
    questions = []
    for number, turn in enumerate(_turns(row), 1):
        asked, rewrite = _text(turn, "question"), _text(turn, REWRITE)
        if not asked.strip():
            raise CorpusError(f"{turn.place}: nothing is asked; write the question, or leave the turn out")
        if gold_ids := turn.ids("supporting"):
            questions.append(
                Question(
                    f"{name}/{number}",
                    asked,
                    gold_ids=gold_ids,
                    kind=_text(turn, "kind") or ("later" if history else "first"),
                    level=f"turn {number}",
                    notes={REWRITE: rewrite} if rewrite else {},
                    history=history,
                )
            )
        history = (*history, Hop(asked, _text(turn, "answer")))
    return questions


def _text(turn: Row, key: str) -> str:
    """Return a text with its white space, as `harr serve` reads it; "" if it is missing.

    Characters that would control a terminal become spaces.
    """
    value = turn.values.get(key) or ""
    if not isinstance(value, str):
        raise CorpusError(f"{turn.place}: {key} is {repr(value)[:40]}, a {type(value).__name__}; expected a string")
    return CONTROL.sub(lambda sign: sign[0] if sign[0] in "\n\t" else " ", value)


def _turns(row: Row) -> Iterator[Row]:
    """Yield the turns of a conversation, each as a row with its place.

    Raises:
        CorpusError: there are no turns, or not one list of gold per user message.
    """
    key = "messages" if "messages" in row.values else "turns"
    values = row.values.get(key)
    if not isinstance(values, list) or not values or not all(isinstance(value, dict) for value in values):
        raise CorpusError(f"{row.place}: {key} is {repr(values)[:60]}; expected a list of objects, one at least")
    for number, turn in enumerate(values if key == "turns" else _turns_of_chat(row), 1):
        yield Row(turn, f"{row.place}: turn {number}")


def _turns_of_chat(row: Row) -> list[dict[str, Any]]:
    """Return the turns of OpenAI's messages, read as `harr serve` reads them."""
    try:
        body = SearchBody.model_validate({"messages": row.values["messages"]})
    except ValidationError as error:
        raise CorpusError(f"{row.place}: {refusal(error)}") from None
    last, before = conversation([(message.role, message.text) for message in body.messages])
    gold = row.values.get("supporting")
    if not isinstance(gold, list) or len(gold) != len(before) + 1:
        count = len(gold) if isinstance(gold, list) else 0
        raise CorpusError(
            f"{row.place}: supporting has {count} lists for {len(before) + 1} messages of the user; give a list of ids "
            "for each, [] for none"
        )
    said = zip([*before, (last, "")], gold, strict=True)
    return [{"question": asked, "answer": answer, "supporting": ids} for (asked, answer), ids in said]
