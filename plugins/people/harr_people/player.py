"""The scripted planner and reader of the people's world; both read only the message that they are given.

The planner sees question and history, looks up step after step, and stops when a step finds nothing. The reader sees a
sub-query and passages: it answers from the first passage that states the relation asked for and, if a person is named,
is about that person. It cannot resolve a pronoun or a description. Like a language model, both tell the prompts of
``harr/rag/pipelines/multistep.py`` apart by their text.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harr.errors import ParamsError
from harr.types import Generate
from harr_people.biography import FACT, read
from harr_people.grammar import split_mention
from harr_people.people import join
from harr_people.programs import Node, parse, steps
from harr_people.references import RATES, sub_query, understand


class Scripted:
    """A :class:`harr.types.Generator` without a model: planner, reader and answer writer.

    ``references``: rates of the kinds of reference (``harr_people/references.py``). Of the kinds that can be understood
    at a step, one is drawn in proportion to its rate; a kind that is not listed has rate 0, and without any rates
    sub-queries name everybody. A question that cannot be parsed is searched for once as it is and then given up.
    """

    def __init__(self, references: Mapping[str, float] = RATES) -> None:
        """Check and store the rates.

        Raises:
            ParamsError: a kind is unknown, or a rate is not a number from 0 on.
        """
        wrong = {kind: rate for kind, rate in references.items() if kind not in RATES or not rate >= 0}
        if wrong:
            raise ParamsError(
                f"generator.settings.references: {wrong}; expected a number from 0 on for some of {', '.join(RATES)}"
            )
        self._requests, self._references = 0, references

    def usage(self) -> dict[str, float]:
        """Return the number of requests since the start."""
        return {"requests": float(self._requests)}

    def complete(self, requests: Sequence[Generate]) -> list[str]:
        """Answer every request, in order.

        >>> text = "Question: Name the rival of the painter Ada Brown.\\nHistory: []\\nNext action:"
        >>> json.loads(Scripted().complete([Generate(({"role": "user", "content": text},))])[0])["strategy"]
        'look up the rival'
        """
        self._requests += len(requests)
        texts = [request.messages[-1]["content"] if request.messages else request.prompt for request in requests]
        return [self._reply(Asked.read(text)) for text in texts]

    def _reply(self, asked: "Asked") -> str:
        if asked.sub_query is not None:
            return json.dumps(look(asked.sub_query, asked.passages), ensure_ascii=False)
        if asked.final:
            return answer(asked.question, asked.history)
        return json.dumps(plan(asked.question, asked.history, self._references), ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class Asked:
    """What a message of ``multistep`` asks for: the reading of passages, the final answer, or else the next action."""

    question: str
    history: Sequence[Mapping[str, str]]
    sub_query: str | None
    passages: Sequence[tuple[str, str]]
    final: bool

    @classmethod
    def read(cls, message: str) -> "Asked":
        """Split a message into its parts."""
        head, _, passages = message.partition("\nPassages:\n")
        fields = dict(line.split(": ", 1) for line in head.splitlines() if ": " in line)
        history = json.loads(fields.get("History", "[]"))
        final = message.endswith("Final answer:")
        return cls(fields.get("Question", ""), history, fields.get("Sub-query"), pairs(passages), final)


def pairs(passages: str) -> list[tuple[str, str]]:
    """Return titles and texts of numbered passages, two lines each."""
    lines = passages.splitlines()
    return [(title.partition("] ")[2], text) for title, text in zip(lines[::2], lines[1::2], strict=False)]


def ask(query: str, strategy: str) -> dict[str, str]:
    """Return the planner's action for asking."""
    return {"action": "ASK", "sub_query": query, "strategy": strategy}


def stop(strategy: str) -> dict[str, str]:
    """Return the planner's action for ending."""
    return {"action": "STOP", "sub_query": "", "strategy": strategy}


def plan(question: str, history: Sequence[Mapping[str, str]], references: Mapping[str, float]) -> dict[str, str]:
    """Return the next sub-query, with the full name in ``resolved``; STOP if nothing is left to ask or the last step
    failed.

    >>> question = "Name the summer home of the rival of the painter Ada Brown."
    >>> past = [{"sub_query": "Who was Ada Brown's rival?", "status": "FOUND", "answer": "Clara Gray"}]
    >>> plan(question, past, {"pronoun": 1})["sub_query"], plan(question, past, {"pronoun": 1})["resolved"]
    ('Which town was her summer home?', "Which town was Clara Gray's summer home?")
    """
    if parse(question) is None:
        return stop("nothing else to try") if history else ask(question, "search for the question itself")
    done, names, following = _replay(question, history)
    if following is None:
        return stop("nothing is left to look up") | {"resolved": ""}
    people = {node: name for node, name in names.items() if not node[1:] or FACT[node[-1]].range == "person"}
    text, resolved = sub_query(question, following, done, people, references)
    return ask(text, f"look up the {following[-1]}") | {"resolved": resolved}


def answer(question: str, history: Sequence[Mapping[str, str]]) -> str:
    """Return the answers to what the question asks, in its order."""
    _, names, _ = _replay(question, history)
    return join([names[leaf] for leaf in parse(question) or () if leaf in names]) or "unknown"


def look(sub_query: str, passages: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Return the answer to a sub-query from passages, given as pairs of title and text, best first.

    >>> look("Who was her rival?", [("Ada Brown", "Ada Brown had a lifelong rival, Clara Gray.")])
    {'status': 'FOUND', 'answer': 'Clara Gray'}
    """
    fact, name = understand(sub_query) or (None, "")
    readings = [read(fact, text) for title, text in passages if not name or title == name] if fact else []
    value = next((reading for reading in readings if reading), "")
    return {"status": "FOUND" if value else "NOT_FOUND", "answer": value}


def _replay(
    question: str, history: Sequence[Mapping[str, Any]]
) -> tuple[tuple[Node, ...], dict[Node, str], Node | None]:
    """Return the steps asked so far, the names by node, and the next step: None after the last one or a failure."""
    order = steps(question)
    done = order[: len(history)]
    names: dict[Node, str] = {(step[0],): split_mention(step[0])[0] for step in order}
    names |= {step: hop["answer"] for step, hop in zip(done, history, strict=False) if hop["status"] == "FOUND"}
    goes_on = len(done) < len(order) and all(step in names for step in done)
    return done, names, order[len(done)] if goes_on else None
