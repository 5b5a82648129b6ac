"""A deterministic scripted stand-in for an LLM that only reads the messages it is given.

It plays planner, reader and answer writer of ``harr/pipelines/multistep.py`` in the fictional world.
Like an LLM it tells the three prompts apart by their text, finds its way by the grammar of English
(here ``harr/corpus/grammar.py``) and knows nothing that is not written in the prompt.

About half of its later sub-queries are under-specified ("Where was she born?"), chosen by a hash of
the question and the hop: they can be searched for only by a retriever that uses the history.
A question it cannot parse is searched for once as it stands and then given up.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from harr.corpus import grammar
from harr.types import Generate

_NOT_FOUND = {"status": "NOT_FOUND", "answer": ""}


class Scripted:
    """A :class:`harr.types.Generator` without a model."""

    def __init__(self) -> None:
        self._requests = 0

    def usage(self) -> dict[str, float]:
        """Requests since the start."""
        return {"requests": float(self._requests)}

    def complete(self, requests: Sequence[Generate]) -> list[str]:
        """Answer every request, in order.

        >>> text = "Question: Where was Ada Brown born?\\nHistory: []\\nNext action:"
        >>> Scripted().complete([Generate(({"role": "user", "content": text},))])
        ['{"action": "ASK", "sub_query": "Where was Ada Brown born?", "strategy": "look up birthplace"}']
        """
        self._requests += len(requests)
        return [_reply(request.messages[-1]["content"]) for request in requests]


def _reply(prompt: str) -> str:
    head, _, passages = prompt.partition("\nPassages:\n")
    fields = dict(line.split(": ", 1) for line in head.splitlines() if ": " in line)
    question = fields.get("Question", "")
    history = json.loads(fields.get("History", "[]"))
    if "Sub-query" in fields:
        return json.dumps(_read(fields["Sub-query"], history, passages), ensure_ascii=False)
    if prompt.endswith("Final answer:"):
        return _answer(question, history)
    return json.dumps(_plan(question, history), ensure_ascii=False)


def _plan(question: str, history: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """The next sub-query along the question's chain; STOP when it is done or a hop failed."""
    chain = grammar.parse(question)
    if chain is None:
        return _stop("nothing else to try") if history else _ask(question, "search for the question itself")
    if history and history[-1]["status"] != "FOUND":
        return _stop("the last fact was not found")
    if len(history) == len(chain.relations):
        return _stop("all facts are known")
    relation = chain.relations[len(history)]
    digest = hashlib.sha256(f"{question}\n{len(history)}".encode()).digest()  # crc32 would tie the hops to each other
    pick = int.from_bytes(digest[:4], "little")
    if history and pick % 2:
        query = grammar.ask_vaguely(relation, grammar.gender(history[-1]["answer"]), pick // 2)
    else:
        query = grammar.ask(relation, history[-1]["answer"] if history else chain.start, pick // 2)
    return _ask(query, f"look up {relation.name.replace('_', ' ')}")


def _ask(query: str, strategy: str) -> dict[str, str]:
    return {"action": "ASK", "sub_query": query, "strategy": strategy}


def _stop(strategy: str) -> dict[str, str]:
    return {"action": "STOP", "sub_query": "", "strategy": strategy}


def _read(sub_query: str, history: Sequence[Mapping[str, str]], passages: str) -> dict[str, Any]:
    """Look for the fact in the passages about the entity; a pronoun means the last answer."""
    relation = grammar.parse_vague(sub_query)
    if relation:
        subject = history[-1]["answer"] if history else ""
    else:
        chain = grammar.parse(sub_query)
        if chain is None or len(chain.relations) > 1:
            return _NOT_FOUND
        relation, subject = chain.relations[0], chain.start
    name, qualifier = grammar.split_mention(subject)
    lines = passages.splitlines()
    answers = set()
    for heading, text in zip(lines[::2], lines[1::2], strict=False):
        title_name, title_qualifier = grammar.split_title(heading.partition("] ")[2])
        if title_name != name or (qualifier and title_qualifier != qualifier):
            continue
        answers |= {grammar.read(relation, name, sentence) for sentence in grammar.sentences(text)}
    answers.discard(None)
    if len(answers) > 1:
        return {"status": "AMBIGUOUS", "answer": ""}
    return {"status": "FOUND", "answer": answers.pop()} if answers else _NOT_FOUND


def _answer(question: str, history: Sequence[Mapping[str, str]]) -> str:
    """The last hop's answer, if every hop of the question was found."""
    chain = grammar.parse(question)
    found = [hop["answer"] for hop in history if hop["status"] == "FOUND"]
    done = chain is not None and len(found) == len(history) == len(chain.relations)
    return found[-1] if done else "unknown"
