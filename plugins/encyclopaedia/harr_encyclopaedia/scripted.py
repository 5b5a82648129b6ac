"""A deterministic, scripted stand-in for a language model, which only reads its messages.

It plays planner, reader and answer writer of ``harr/rag/pipelines/multistep.py``, every turn of
``harr/rag/pipelines/search_r1.py`` and the reader of ``evaluate.reader`` in the fictional encyclopaedia;
:func:`plan` is a teacher for ``harr/rag/pipelines/r_search.py``.
Like a language model it tells the prompts apart by their text, knows the grammar of English (here ``grammar.py``) and
knows nothing that is not in the prompt.

About half of its later sub-queries are under-specified ("Where was she born?"), chosen by a hash of the question and
the hop: only a retriever that uses the history can search for them. A question that it cannot parse is searched for
once as it is and then given up.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from harr_people.grammar import gender, sentences
from harr_people.player import Asked, ask, pairs, stop

from harr.types import Generate
from harr_encyclopaedia import grammar
from harr_encyclopaedia.relations import SOURCES, Relation

LABELS = "ABCDEFGH"
_NOT_FOUND = {"status": "NOT_FOUND", "answer": ""}
_RESULTS = re.compile(r"<information>(.*?)</information>\s*(?:<think>(.*?)</think>)?", re.DOTALL)
_FOUND = re.compile(r"<found> [A-Z] is (.*?) </found>")
_DOCUMENT = re.compile(r"^Doc \d+\(Title: (.*?)\) ([A-Z].*)$", re.MULTILINE)


class Scripted:
    """A :class:`harr.types.Generator` without a model."""

    def __init__(self) -> None:
        self._requests = 0

    def usage(self) -> dict[str, float]:
        """Return the number of requests since the start."""
        return {"requests": float(self._requests)}

    def complete(self, requests: Sequence[Generate]) -> list[str]:
        """Answer every request, in order.

        >>> text = "Question: Where was Ada Brown born?\\nHistory: []\\nNext action:"
        >>> Scripted().complete([Generate(({"role": "user", "content": text},))])
        ['{"action": "ASK", "sub_query": "Where was Ada Brown born?", "strategy": "look up birthplace"}']
        """
        self._requests += len(requests)
        return [
            _reply(request.messages[-1]["content"]) if request.messages else request.cut(turn(request.prompt))
            for request in requests
        ]


def turn(text: str) -> str:
    """Return the next turn of a Search-R1 trace: what the last passages state, then a search or the answer.

    >>> turn("Question: Where was Ada Brown's mother born?\\n")
    '<think> mother, birthplace </think><search> What was the name of the mother of Ada Brown? </search>'
    """
    question, _, rest = text.partition("Question: ")[2].partition("\n")
    question = question.removesuffix("<|im_end|>")
    chain = grammar.parse(question)
    results = _RESULTS.findall(rest)
    if chain is None:
        return "<answer> unknown </answer>" if results else f"<search> {question} </search>"
    hop = len(results)
    if not hop:
        plan = ", ".join(relation.name.replace("_", " ") for relation in chain.relations)
        return f"<think> {plan} </think><search> {_query(question, chain, 0, '')} </search>"
    subject = results[-2][1].rpartition(" is ")[2].strip() if hop > 1 else chain.start
    relation = chain.relations[hop - 1]
    found = facts(relation, subject, _DOCUMENT.findall(results[-1][0]))
    value = found.pop() if len(found) == 1 else "unknown"
    thought = f"<think> {grammar.phrase(relation, subject)} is {value} </think>"
    if value == "unknown" or hop == len(chain.relations):
        return f"{thought}<answer> {value} </answer>"
    return f"{thought}<search> {_query(question, chain, hop, value)} </search>"


def plan(text: str) -> str:
    """Return the next turn of an R-Search trace: a search graph, then what the last results state, and the answer.

    >>> print(plan("Question: Where was Ada Brown's mother born?\\n"))
    <think> mother, birthplace </think><search>
    Nodes:
    A: mother of Ada Brown (General)
    B: birthplace of $A (General)
    Edges:
    A -> B
    </search>
    """
    question, _, rest = text.partition("Question: ")[2].partition("\n")
    chain = grammar.parse(question)
    *earlier, results = rest.split("<result>")
    searched = bool(earlier)
    if chain is None:
        words = " ".join(question.split()[:10])
        return (
            "<answer> unknown </answer>" if searched else f"<search>\nNodes:\nA: {words} (General)\nEdges:\n</search>"
        )
    names = [relation.name.replace("_", " ") for relation in chain.relations]
    if not searched:
        subjects = [chain.start, *(f"${label}" for label in LABELS)]
        nodes = [
            f"{label}: {name} of {subject} ({SOURCES[relation.domain]})\n"
            for label, name, subject, relation in zip(LABELS, names, subjects, chain.relations, strict=False)
        ]
        edges = [f"{parent} -> {child}\n" for parent, child in pairwise(LABELS[: len(names)])]
        graph = f"Nodes:\n{''.join(nodes)}Edges:\n{''.join(edges)}"
        return f"<think> {', '.join(names)} </think><search>\n{graph}</search>"
    label, known = LABELS[len(earlier) - 1 :][:1], _FOUND.findall(rest)
    if "not asked:" in results or len(earlier) > len(chain.relations):
        return "<answer> unknown </answer>"
    relation, subject = chain.relations[len(earlier) - 1], known[-1] if known else chain.start
    values = facts(relation, subject, _DOCUMENT.findall(results))
    value = values.pop() if len(values) == 1 else "unknown"
    thought = f"<think> {grammar.phrase(relation, subject)} is {value} </think>"
    last = len(earlier) == len(chain.relations)
    return f"{thought}<answer> {value} </answer>" if last else f"{thought}<found> {label} is {value} </found>"


def follow(chain: grammar.Chain, passages: Sequence[tuple[str, str]]) -> list[tuple[Relation, str, str]]:
    """Follow a question's chain through passages (pairs of title and text); return relation, subject and value per hop.

    The chain ends with the value "unknown" if a fact is missing or stated in two ways.
    """
    hops, value = [], chain.start
    for relation in chain.relations:
        subject = value
        found = facts(relation, subject, passages)
        value = found.pop() if len(found) == 1 else "unknown"
        hops.append((relation, subject, value))
        if value == "unknown":
            break
    return hops


def _reply(prompt: str) -> str:
    if prompt.startswith("Passages:\n"):
        return _answer_from(*prompt.removeprefix("Passages:\n").rpartition("\n\nQuestion: ")[::2])
    asked = Asked.read(prompt)
    if asked.sub_query is not None:
        return json.dumps(_read(asked.sub_query, asked.history, asked.passages), ensure_ascii=False)
    if asked.final:
        return _answer(asked.question, asked.history)
    return json.dumps(_plan(asked.question, asked.history), ensure_ascii=False)


def _plan(question: str, history: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Return the next sub-query along the question's chain; STOP if it is done or a hop failed."""
    chain = grammar.parse(question)
    if chain is None:
        return stop("nothing else to try") if history else ask(question, "search for the question itself")
    if history and history[-1]["status"] != "FOUND":
        return stop("the last fact was not found")
    if len(history) == len(chain.relations):
        return stop("all facts are known")
    hop, known = len(history), history[-1]["answer"] if history else ""
    query, resolved = _query(question, chain, hop, known), _query(question, chain, hop, known, vague=False)
    asked = ask(query, f"look up {chain.relations[hop].name.replace('_', ' ')}")
    return asked if resolved == query else asked | {"resolved": resolved}


def _query(question: str, chain: grammar.Chain, hop: int, known: str, *, vague: bool = True) -> str:
    """Return the sub-query of a hop; if ``vague`` is allowed, half of the later ones have a pronoun for ``known``."""
    digest = hashlib.sha256(f"{question}\n{hop}".encode()).digest()  # crc32 would correlate the hops
    pick = int.from_bytes(digest[:4], "little")
    if vague and hop and pick % 2:
        return grammar.ask_vaguely(chain.relations[hop], gender(known), pick // 2)
    return grammar.ask(chain.relations[hop], known if hop else chain.start, pick // 2)


def _read(sub_query: str, history: Sequence[Mapping[str, str]], passages: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Look for the fact in the passages about the entity; a pronoun means the last answer."""
    relation = grammar.parse_vague(sub_query)
    if relation:
        subject = history[-1]["answer"] if history else ""
    else:
        chain = grammar.parse(sub_query)
        if chain is None or len(chain.relations) > 1:
            return _NOT_FOUND
        relation, subject = chain.relations[0], chain.start
    answers = facts(relation, subject, passages)
    if len(answers) > 1:
        return {"status": "AMBIGUOUS", "answer": ""}
    return {"status": "FOUND", "answer": answers.pop()} if answers else _NOT_FOUND


def _answer_from(passages: str, asked: str) -> str:
    """Return the passages' answer to a whole question, of one or several hops."""
    chain = grammar.parse(asked.partition("\n")[0])
    return follow(chain, pairs(passages))[-1][2] if chain else "unknown"


def facts(relation: Relation, subject: str, passages: Iterable[tuple[str, str]]) -> set[str]:
    """Return what passages, as pairs of title and text, state as ``relation`` of ``subject``."""
    name, qualifier = grammar.split_mention(subject)
    answers: set[str] = set()
    for heading, text in passages:
        title_name, title_qualifier = grammar.split_title(heading)
        if title_name == name and (not qualifier or title_qualifier == qualifier):
            found = (grammar.read(relation, name, sentence) for sentence in sentences(text))
            answers |= {answer for answer in found if answer}
    return answers


def _answer(question: str, history: Sequence[Mapping[str, str]]) -> str:
    """Return the last hop's answer if every hop of the question was found."""
    chain = grammar.parse(question)
    found = [hop["answer"] for hop in history if hop["status"] == "FOUND"]
    done = chain is not None and len(found) == len(history) == len(chain.relations)
    return found[-1] if done else "unknown"
