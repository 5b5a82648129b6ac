"""R-Search: the model plans all its searches as one graph, reads all results at once, and answers (arXiv 2506.08352).

One growing text: thoughts, a search graph (``harr/rag/pipelines/graph.py``), results, an answer. Each level of the
graph is searched at once. Where later queries refer to a node, as ``$A`` does, the results so far are shown first, and
the model writes what the node found: ``<found> A is Ethel Price </found>`` (:func:`findings`). These words replace
``$A``, and are learnt like all of the model's text. The results show every query as it was searched. A node is skipped
if a node that it refers to has no finding; the results say so. A node never gets a passage that one of its ancestors
already found.

A text that is no graph, or a plan that was cut off, ends the episode with the answer "", as published; the reasons are
in ``Outcome.graph``. The form of the blocks is checked separately (``Outcome.faults``), including what the prompt
began. A plan and an answer are two turns, and every block of findings is one more; an answer that was never requested
is not well-formed.
"""

import re
from collections.abc import Generator as PyGenerator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from harr.rag.pipelines.graph import Graph, Node, ancestors, levels, parse
from harr.rag.pipelines.replies import Framed, opening, said
from harr.rag.pipelines.search_r1 import documents
from harr.rag.pipelines.tags import disorder, escape
from harr.types import Generate, Hop, Outcome, Passage, Question, Request, Retrieval, Search

FINDING_WORDS = 10
"""Maximum number of words in a finding, which becomes part of a query."""
UNKNOWN = "unknown"
"""The finding of a node that found nothing; it is well-formed."""
NO_FINDING = "no finding"
"""The fault of a turn that lacks a finding which a later query needs."""
_BEGIN, _CUT = "<think>", "cut off"
_FINDING = re.compile(r"([A-Z]) is (.+)")


def r_search(
    question: Question,
    *,
    tools: Sequence[str],
    max_nodes: int = 8,
    max_words: int = 10,
    template: Framed = "plain",
) -> PyGenerator[Request, Any, Outcome]:
    """Let the model plan at most ``max_nodes`` searches, and answer.

    ``template``: ``plain`` puts the instructions first, ``chatml`` wraps them in Qwen's chat markup, a frame in the
    model's own; all begin the thoughts. ``bare`` shows the question only. An episode without an answer ends with the
    answer "".
    """
    limits = {"max_nodes": max_nodes, "max_words": max_words}
    values = {"tools": ", ".join(tools), "first": tools[0], "last": tools[-1], **limits}
    text, escaped = opening("r_search", question, template, _BEGIN, **values)
    prefix = _BEGIN if text.rstrip().endswith(_BEGIN) else ""
    planning = Generate(prompt=text, stop=("</search>",))
    completion: str = yield planning
    plan = planning.cut(completion)
    block_text = _close_block(plan, "search")
    complete = planning.stopped(completion)
    fault = disorder(prefix + block_text, ("think", "search")) if complete else _CUT
    faults = (fault,) if fault else ()
    block = _block(prefix + plan, "search") if complete else None
    missing = "no search block" if complete else _CUT
    graph = (missing,) if block is None else parse(block, tools, **limits)
    if not isinstance(graph, Graph):
        return Outcome("", (), 1, escaped, 2, (*faults, "no answer"), graph)
    results = _Results(graph, said((prefix + plan).rpartition("<search>")[0]))
    text, turns = text + block_text, 2
    for level in levels(graph):
        if searches := results.searches(question, level):
            results.add(searches, (yield tuple(searches.values())))
        if labels := results.list_open_labels(level):
            text, tags = results.insert(text)
            text += ask_for_findings(labels)
            reply, fault = yield from _write_block(text, "found")
            named_findings = {} if fault == _CUT else findings(_block(reply, "found") or "", labels)
            results.answers |= {label: value for label, value in named_findings.items() if value.lower() != UNKNOWN}
            fault = fault or ("" if named_findings.keys() == labels else NO_FINDING)
            faults = (*faults, fault) if fault else faults
            results.thought = said(reply.rpartition("<found>")[0])
            text, turns, escaped = text + _close_block(reply, "found"), turns + 1, escaped + tags
    text, tags = results.insert(text)
    reply, fault = yield from _write_block(text, "answer")
    answer = " ".join((_block(reply, "answer") or "").split())
    return Outcome(
        answer,
        tuple(results.hops()),
        malformed=int(not answer),
        escaped=escaped + tags,
        turns=turns,
        faults=(*faults, fault) if fault else faults,
        graph=(),
        tool_errors=sum(bool(retrieval.error) for retrieval in results.retrievals.values()),
    )


@dataclass(slots=True)
class _Results:
    """The results of a graph's nodes so far, by label: a search and its retrieval, or why none was made.

    ``thought``: the model's text right before the graph, or before the findings that allow the next searches.
    """

    graph: Graph
    thought: str
    made: dict[str, Search] = field(default_factory=dict)
    retrievals: dict[str, Retrieval] = field(default_factory=dict)
    answers: dict[str, str] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    inserted: set[str] = field(default_factory=set)

    def searches(self, question: Question, level: Sequence[Node]) -> dict[str, Search]:
        """Return the searches of a level, by label."""
        by_label: dict[str, Search] = {}
        for node in level:
            missing = [name for name in node.references if name not in self.answers]
            if missing:
                self.skipped[node.label] = f"nothing was found for {missing[0]}"
            else:
                by_label[node.label] = self._search(question, node)
        return by_label

    def add(self, searches: dict[str, Search], retrievals: Sequence[Retrieval]) -> None:
        """Store searches and their retrievals."""
        self.made |= searches
        self.retrievals |= zip(searches, retrievals, strict=True)

    def list_open_labels(self, level: Sequence[Node]) -> set[str]:
        """Return the labels of a level that found passages and that later queries refer to."""
        referenced = {name for node in self.graph.nodes for name in node.references}
        return {node.label for node in level if node.label in referenced and self._passages(node.label)}

    def insert(self, text: str) -> tuple[str, int]:
        """Return a text with a block of the new results, and how many control tags were escaped in the block.

        The block shows each node's label, tool and query, then its passages or why there are none.
        """
        lines = []
        for node in (node for level in levels(self.graph) for node in level):
            search, retrieval = self.made.get(node.label), self.retrievals.get(node.label, Retrieval(()))
            if node.label in self.inserted or not (search or node.label in self.skipped):
                continue
            self.inserted.add(node.label)
            lines.append(f"{node.label} ({node.tool}): {search.query if search else node.query}")
            if not search:
                lines.append(f"not asked: {self.skipped[node.label]}")
            elif retrieval.error:
                lines.append(f"error: {' '.join(retrieval.error.split())[:200]}")
            elif not retrieval.passages:
                lines.append("nothing found")
            lines += documents(retrieval.passages)
        block, tags = escape("\n".join(lines))
        return f"{text}\n<result>\n{block}\n</result>\n", tags

    def hops(self, labels: Iterable[str] | None = None) -> Iterable[Hop]:
        """Yield the searches made, or those of ``labels``, with the model's findings."""
        for label, search in self.made.items():
            if labels is None or label in labels:
                yield Hop(search.query, self.answers.get(label, ""))

    def _passages(self, label: str) -> tuple[Passage, ...]:
        return self.retrievals[label].passages if label in self.retrievals else ()

    def _search(self, question: Question, node: Node) -> Search:
        before = ancestors(node.label, self.graph.edges)
        return Search(
            question,
            node.fill_in(self.answers),
            tuple(self.hops(before)),
            frozenset(passage.id for label in before for passage in self._passages(label)),
            tool=node.tool,
            thought=self.thought,
        )


def ask_for_findings(labels: Iterable[str]) -> str:
    """Return the line that asks for findings; without it a model could not know whether to answer.

    >>> ask_for_findings({"B", "A"})
    'What did A, B find?\\n'
    """
    return f"What did {', '.join(sorted(labels))} find?\n"


def findings(text: str, wanted: Iterable[str]) -> dict[str, str]:
    """Return the findings of the ``wanted`` nodes in a block, by label; lines or semicolons separate them.

    Nothing is repaired: findings of more than ``FINDING_WORDS`` words, and of nodes named twice, are left out.

    >>> findings(" A is Ethel Price; B is Bath\\nB is Rome\\nC is 1902 ", {"A", "B", "C"})
    {'A': 'Ethel Price', 'C': '1902'}
    """
    lines = [_FINDING.fullmatch(" ".join(line.split())) for line in re.split(r"[;\n]", text)]
    pairs = [(line[1], line[2]) for line in lines if line]
    labels = [label for label, _ in pairs]
    return {
        label: value
        for label, value in pairs
        if label in wanted and labels.count(label) == 1 and len(value.split()) <= FINDING_WORDS
    }


def _write_block(text: str, tag: str) -> PyGenerator[Request, Any, tuple[str, str]]:
    """Let the model write a block, with or without thoughts before it; return the text and its fault or ""."""
    request = Generate(prompt=text, stop=(f"</{tag}>",))
    completion: str = yield request
    reply = request.cut(completion)
    fault = disorder(_close_block(reply, tag), ("think", tag) if "<think>" in reply else (tag,))
    return reply, fault if request.stopped(completion) else _CUT


def _block(text: str, tag: str) -> str | None:
    """Return the content of the first ``tag`` block after the thoughts, closed or not; None without one.

    >>> _block("<think>or <answer>Rome</answer>?</think><answer> Bath", "answer")
    ' Bath'
    """
    _, tag_found, rest = text.rpartition("</think>")[2].partition(f"<{tag}>")
    return rest.partition(f"</{tag}>")[0] if tag_found else None


def _close_block(turn: str, tag: str) -> str:
    """Return a turn with its closing tag, which the stop string cut off."""
    return f"{turn}</{tag}>" if f"<{tag}>" in turn else turn
