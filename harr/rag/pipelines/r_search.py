"""R-Search: the model plans all its searches as one graph, reads all results at once, and answers (arXiv 2506.08352).

One growing text: thoughts, a search graph (``harr/rag/pipelines/graph.py``), the results, an answer. The searches of a
level of the graph are made together. ``$A`` in a query becomes what A found: the names and years in its best passage
that its own query did not have (:func:`learnt`). The results show every query as it was asked, so the model sees what
was put in. A node is not asked if a node that it refers to found nothing or if the budget is spent, which the results
say, too. A node never gets a passage that a node before it already found.

A text that is no graph ends the episode with the answer "", as published: the reasons are in ``Outcome.graph``. So does
a plan that was cut off. Whether the blocks have their form is another matter (``Outcome.faults``), which counts what
the prompt began. There are two turns, plan and answer; an answer that was never asked for is not well-formed.
"""

import re
from collections.abc import Generator as PyGenerator, Sequence
from dataclasses import dataclass, field
from typing import Any

from harr.rag.pipelines.graph import Graph, Node, ancestors, levels, parse
from harr.rag.pipelines.replies import opening, said
from harr.rag.pipelines.search_r1 import documents
from harr.rag.pipelines.tags import disorder, escape
from harr.types import Generate, Hop, Outcome, Passage, Question, Request, Retrieval, Search

LEARNT_WORDS = 20
_BEGUN, _CUT = "<think>", "cut off"
_CAPITAL = r"[A-Z][\w'-]*"
_NAME = re.compile(
    rf"\b{_CAPITAL}(?:(?: (?:of|the|and|to|for|&))* {_CAPITAL})+|(?<![.!?] )(?<!^)\b(?:{_CAPITAL}|\d{{4}}\b)"
)
"""Words with a capital in a row, or one that does not begin a sentence; a year."""


def r_search(
    question: Question,
    *,
    tools: Sequence[str],
    max_nodes: int = 8,
    max_words: int = 10,
    budget: int = 0,
    template: str = "plain",
) -> PyGenerator[Request, Any, Outcome]:
    """Let the model plan at most ``max_nodes`` searches, of which ``budget`` are made (0: all), and answer.

    ``template``: ``plain`` puts the instructions first, ``chatml`` wraps them in Qwen's chat markup; both begin the
    thoughts. ``bare`` shows the question only. An episode without an answer ends with the answer "".
    """
    limits = {"max_nodes": max_nodes, "max_words": max_words}
    shown = {"tools": ", ".join(tools), "first": tools[0], "last": tools[-1], **limits}
    shown["budget"] = f" At most {budget} searches are made." if budget else ""
    text, escaped = opening("r_search", question, template, _BEGUN, **shown)
    begun = _BEGUN if text.endswith(_BEGUN) else ""
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
    findings = _Findings(graph, budget, said((begun + plan).rpartition("<search>")[0]))
    for level in levels(graph):
        searches = findings.searches(question, level)
        if searches:
            findings.add(searches, (yield tuple(searches.values())))
    result, found = escape(findings.text())
    answering = Generate(prompt=f"{text}{written}\n<result>\n{result}\n</result>\n", stop=("</answer>",))
    completion = yield answering
    reply = answering.cut(completion)
    wrong = disorder(_closed(reply, "answer"), ("think", "answer") if "<think>" in reply else ("answer",))
    wrong = wrong if answering.stopped(completion) else _CUT
    answer = " ".join((_block(reply, "answer") or "").split())
    return Outcome(
        answer,
        tuple(findings.hops.values()),
        malformed=int(not answer),
        escaped=escaped + found,
        turns=2,
        faults=(*faults, wrong) if wrong else faults,
        graph=(),
        tool_errors=sum(bool(retrieval.error) for retrieval in findings.retrievals.values()),
    )


@dataclass(slots=True)
class _Findings:
    """What the nodes of a graph have found so far, by label: each was asked, or there is a reason why not.

    ``thought``: what was written before the graph, and so before all its searches.
    """

    graph: Graph
    budget: int
    thought: str
    asked: dict[str, Search] = field(default_factory=dict)
    retrievals: dict[str, Retrieval] = field(default_factory=dict)
    hops: dict[str, Hop] = field(default_factory=dict)
    unasked: dict[str, str] = field(default_factory=dict)

    def searches(self, question: Question, level: Sequence[Node]) -> dict[str, Search]:
        """Return the searches of a level, by label."""
        found: dict[str, Search] = {}
        for node in level:
            missing = [name for name in node.references if not self._learnt(name)]
            if missing:
                self.unasked[node.label] = f"{missing[0]} found nothing to put in its place"
            elif self.budget and len(self.asked) + len(found) >= self.budget:
                self.unasked[node.label] = f"all {self.budget} searches are used up"
            else:
                found[node.label] = self._search(question, node)
        return found

    def add(self, searches: dict[str, Search], retrievals: Sequence[Retrieval]) -> None:
        """Keep what came back."""
        self.asked |= searches
        self.retrievals |= zip(searches, retrievals, strict=True)
        self.hops |= {label: Hop(search.query, self._learnt(label)) for label, search in searches.items()}

    def text(self) -> str:
        """Return what the model is shown: per node its label, tool and query, then passages or why there are none."""
        shown = []
        for node in (node for level in levels(self.graph) for node in level):
            search, retrieval = self.asked.get(node.label), self.retrievals.get(node.label, Retrieval(()))
            shown.append(f"{node.label} ({node.tool}): {search.query if search else node.query}")
            if not search:
                shown.append(f"not asked: {self.unasked[node.label]}")
            elif retrieval.error:
                shown.append(f"error: {' '.join(retrieval.error.split())[:200]}")
            elif not retrieval.passages:
                shown.append("nothing found")
            shown += documents(retrieval.passages)
        return "\n".join(shown)

    def _learnt(self, label: str) -> str:
        """Return what stands for a node in a query."""
        passages = self.retrievals[label].passages if label in self.retrievals else ()
        return learnt(passages[0], self.asked[label].query) if passages else ""

    def _search(self, question: Question, node: Node) -> Search:
        before = ancestors(node.label, self.graph.edges)
        return Search(
            question,
            node.filled({name: self._learnt(name) for name in node.references}),
            tuple(hop for label, hop in self.hops.items() if label in before),
            frozenset(p.id for label in before if label in self.retrievals for p in self.retrievals[label].passages),
            tool=node.tool,
            thought=self.thought,
        )


def learnt(passage: Passage, query: str) -> str:
    """Return what a passage says beyond query and title: its names and years, or where it has none its first words.

    A later query of all its words would look for what they say, and no longer for what it is about. Names are found
    by their capitals; a text without any is cut to ``LEARNT_WORDS`` words.

    >>> learnt(Passage("p", "It was founded by Ethel Price in 1902. Its seat is Bath.", "Hurst Ltd"), "seat of Hurst")
    'Ethel Price, 1902, Bath'
    """
    text, known = " ".join(passage.text.split()), f"{query} {passage.title}".lower()
    found = dict.fromkeys(name[0] for name in _NAME.finditer(text) if name[0].lower() not in known)
    return ", ".join(found) or " ".join(text.split()[:LEARNT_WORDS])


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
