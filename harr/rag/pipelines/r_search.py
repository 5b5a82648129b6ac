"""R-Search: the model plans all its searches as one graph, reads all results at once, and answers (arXiv 2506.08352).

One growing text: thoughts, a search graph (``harr/rag/pipelines/graph.py``), results, an answer. The searches of a
level of the graph are made together. Where later queries refer to a node, as ``$A`` does, the results so far are shown
first, and the model is asked what it found: ``<found> A is Ethel Price </found>`` (:func:`findings`). These words are
put in for ``$A``, and learnt like all that the model writes. The results show every query as it was asked. A node is
not asked if a node that it refers to has no finding or if the budget is spent, which the results say, too. A node never
gets a passage that a node before it already found.

A text that is no graph ends the episode with the answer "", as published: the reasons are in ``Outcome.graph``. So does
a plan that was cut off. Whether the blocks have their form is another matter (``Outcome.faults``), which counts what
the prompt began. A plan and an answer are two turns, and every block of findings is one more; an answer that was never
asked for is not well-formed.
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
"""Maximum number of words of a finding, which becomes a part of a query."""
UNKNOWN = "unknown"
"""The finding of a node that found nothing; whoever says so is well-formed."""
NO_FINDING = "no finding"
"""The fault of a turn that does not say what a later query needs."""
_BEGUN, _CUT = "<think>", "cut off"
_FINDING = re.compile(r"([A-Z]) is (.+)")


def r_search(
    question: Question,
    *,
    tools: Sequence[str],
    max_nodes: int = 8,
    max_words: int = 10,
    budget: int = 0,
    template: Framed = "plain",
) -> PyGenerator[Request, Any, Outcome]:
    """Let the model plan at most ``max_nodes`` searches, of which ``budget`` are made (0: all), and answer.

    ``template``: ``plain`` puts the instructions first, ``chatml`` wraps them in Qwen's chat markup, a frame in the
    model's own; all begin the thoughts. ``bare`` shows the question only. An episode without an answer ends with the
    answer "".
    """
    limits = {"max_nodes": max_nodes, "max_words": max_words}
    shown = {"tools": ", ".join(tools), "first": tools[0], "last": tools[-1], **limits}
    shown["budget"] = f" At most {budget} searches are made." if budget else ""
    text, escaped = opening("r_search", question, template, _BEGUN, **shown)
    begun = _BEGUN if text.rstrip().endswith(_BEGUN) else ""
    planning = Generate(prompt=text, stop=("</search>",))
    completion: str = yield planning
    plan = planning.cut(completion)
    written = _closed(plan, "search")
    whole = planning.stopped(completion)
    wrong = disorder(begun + written, ("think", "search")) if whole else _CUT
    faults = (wrong,) if wrong else ()
    block = _block(begun + plan, "search") if whole else None
    missing = "no search block" if whole else _CUT
    graph = (missing,) if block is None else parse(block, tools, **limits)
    if not isinstance(graph, Graph):
        return Outcome("", (), 1, escaped, 2, (*faults, "no answer"), graph)
    results = _Results(graph, budget, said((begun + plan).rpartition("<search>")[0]))
    text, turns = text + written, 2
    for level in levels(graph):
        if searches := results.searches(question, level):
            results.add(searches, (yield tuple(searches.values())))
        if wanted := results.wanted(level):
            text, tags = results.insert(text)
            text += asked_for(wanted)
            reply, wrong = yield from _block_of(text, "found")
            read = {} if wrong == _CUT else findings(_block(reply, "found") or "", wanted)
            results.learnt |= {label: value for label, value in read.items() if value.lower() != UNKNOWN}
            wrong = wrong or ("" if read.keys() == wanted else NO_FINDING)
            faults = (*faults, wrong) if wrong else faults
            results.thought = said(reply.rpartition("<found>")[0])
            text, turns, escaped = text + _closed(reply, "found"), turns + 1, escaped + tags
    text, tags = results.insert(text)
    reply, wrong = yield from _block_of(text, "answer")
    answer = " ".join((_block(reply, "answer") or "").split())
    return Outcome(
        answer,
        tuple(results.hops()),
        malformed=int(not answer),
        escaped=escaped + tags,
        turns=turns,
        faults=(*faults, wrong) if wrong else faults,
        graph=(),
        tool_errors=sum(bool(retrieval.error) for retrieval in results.retrievals.values()),
    )


@dataclass(slots=True)
class _Results:
    """What the nodes of a graph have brought so far, by label: each was asked, or there is a reason why not.

    ``thought``: what was written right before the graph, or the findings, that let the next searches be made.
    """

    graph: Graph
    budget: int
    thought: str
    asked: dict[str, Search] = field(default_factory=dict)
    retrievals: dict[str, Retrieval] = field(default_factory=dict)
    learnt: dict[str, str] = field(default_factory=dict)
    unasked: dict[str, str] = field(default_factory=dict)
    shown: set[str] = field(default_factory=set)

    def searches(self, question: Question, level: Sequence[Node]) -> dict[str, Search]:
        """Return the searches of a level, by label."""
        found: dict[str, Search] = {}
        for node in level:
            missing = [name for name in node.references if name not in self.learnt]
            if missing:
                self.unasked[node.label] = f"nothing was found for {missing[0]}"
            elif self.budget and len(self.asked) + len(found) >= self.budget:
                self.unasked[node.label] = f"all {self.budget} searches are used up"
            else:
                found[node.label] = self._search(question, node)
        return found

    def add(self, searches: dict[str, Search], retrievals: Sequence[Retrieval]) -> None:
        """Keep what came back."""
        self.asked |= searches
        self.retrievals |= zip(searches, retrievals, strict=True)

    def wanted(self, level: Sequence[Node]) -> set[str]:
        """Return the labels of a level that brought passages and that a later query refers to."""
        needed = {name for node in self.graph.nodes for name in node.references}
        return {node.label for node in level if node.label in needed and self._passages(node.label)}

    def insert(self, text: str) -> tuple[str, int]:
        """Return a text with a block of what was not yet shown, and how many control tags were escaped in it.

        Per node its label, tool and query, then passages or why there are none.
        """
        lines = []
        for node in (node for level in levels(self.graph) for node in level):
            search, retrieval = self.asked.get(node.label), self.retrievals.get(node.label, Retrieval(()))
            if node.label in self.shown or not (search or node.label in self.unasked):
                continue
            self.shown.add(node.label)
            lines.append(f"{node.label} ({node.tool}): {search.query if search else node.query}")
            if not search:
                lines.append(f"not asked: {self.unasked[node.label]}")
            elif retrieval.error:
                lines.append(f"error: {' '.join(retrieval.error.split())[:200]}")
            elif not retrieval.passages:
                lines.append("nothing found")
            lines += documents(retrieval.passages)
        shown, tags = escape("\n".join(lines))
        return f"{text}\n<result>\n{shown}\n</result>\n", tags

    def hops(self, labels: Iterable[str] | None = None) -> Iterable[Hop]:
        """Yield the searches made, or those of ``labels``, with what the model says that they found."""
        for label, search in self.asked.items():
            if labels is None or label in labels:
                yield Hop(search.query, self.learnt.get(label, ""))

    def _passages(self, label: str) -> tuple[Passage, ...]:
        return self.retrievals[label].passages if label in self.retrievals else ()

    def _search(self, question: Question, node: Node) -> Search:
        before = ancestors(node.label, self.graph.edges)
        return Search(
            question,
            node.filled(self.learnt),
            tuple(self.hops(before)),
            frozenset(passage.id for label in before for passage in self._passages(label)),
            tool=node.tool,
            thought=self.thought,
        )


def asked_for(labels: Iterable[str]) -> str:
    """Return the line that asks for findings; without it no model could tell whether it is to answer.

    >>> asked_for({"B", "A"})
    'What did A, B find?\\n'
    """
    return f"What did {', '.join(sorted(labels))} find?\n"


def findings(text: str, wanted: Iterable[str]) -> dict[str, str]:
    """Return what a block says that the ``wanted`` nodes found, by label; lines or semicolons divide it.

    Nothing is repaired: one of more than ``FINDING_WORDS`` words is left out, and so is a node that is told twice.

    >>> findings(" A is Ethel Price; B is Bath\\nB is Rome\\nC is 1902 ", {"A", "B", "C"})
    {'A': 'Ethel Price', 'C': '1902'}
    """
    lines = [_FINDING.fullmatch(" ".join(line.split())) for line in re.split(r"[;\n]", text)]
    told = [(line[1], line[2]) for line in lines if line]
    labels = [label for label, _ in told]
    return {
        label: value
        for label, value in told
        if label in wanted and labels.count(label) == 1 and len(value.split()) <= FINDING_WORDS
    }


def _block_of(text: str, tag: str) -> PyGenerator[Request, Any, tuple[str, str]]:
    """Let the model write a block, thoughts before it or not: what it wrote, and why that is not well-formed or ""."""
    asked = Generate(prompt=text, stop=(f"</{tag}>",))
    completion: str = yield asked
    reply = asked.cut(completion)
    wrong = disorder(_closed(reply, tag), ("think", tag) if "<think>" in reply else (tag,))
    return reply, wrong if asked.stopped(completion) else _CUT


def _block(text: str, tag: str) -> str | None:
    """Return what stands in the first such block after the thoughts; it may lack its end. None where there is none.

    >>> _block("<think>or <answer>Rome</answer>?</think><answer> Bath", "answer")
    ' Bath'
    """
    _, opened, rest = text.rpartition("</think>")[2].partition(f"<{tag}>")
    return rest.partition(f"</{tag}>")[0] if opened else None


def _closed(turn: str, tag: str) -> str:
    """Return a turn with the tag that ended it, which was cut off."""
    return f"{turn}</{tag}>" if f"<{tag}>" in turn else turn
