"""Search graphs: which sub-queries a model asks of which tool, and which of them wait for others (arXiv 2506.08352).

A graph is text in exactly this form::

    Nodes:
    A: mother of Ada Brown (General)
    B: birthplace of $A (News)
    Edges:
    A -> B

A node is a label (one capital letter), a query and a tool. Edges are separated by lines or semicolons; they may also
follow the heading on its line. ``$A`` in a query stands for what A finds. Case matters and nothing is repaired, so that
the model learns one form. A repeated edge counts once. A reference does not make an edge: a query may only refer to a
node that leads to it.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

REASONS = (
    "foreign tag",
    "missing heading",
    "headings out of order",
    "unreadable line",
    "no node",
    "too many nodes",
    "duplicate label",
    "node without query",
    "too many words",
    "unknown tool",
    "undeclared node",
    "self-loop",
    "cycle",
    "reference to no ancestor",
)
"""Why a text is no graph; a colon and what the reason is about may follow."""
_HEADINGS = ("Nodes", "Edges")
_HEADING = re.compile(r"(Nodes|Edges)(?::(.*))?")
_NODE = re.compile(r"([A-Z]):(.*)")
_TAG = re.compile(r"</?[A-Za-z][^<>]*>|<\|[^<>]*\|>")
_REFERENCE = re.compile(r"\$([A-Za-z])\b")
_SHOWN = 40
"""Maximum number of characters of the model's text quoted in a reason."""


@dataclass(frozen=True, slots=True)
class Node:
    """A sub-query and the tool that answers it."""

    label: str
    query: str
    tool: str

    @property
    def references(self) -> tuple[str, ...]:
        """Return the labels that the query refers to, each once.

        >>> Node("C", "is $A older than $B or $A, for $5?", "General").references
        ('A', 'B')
        """
        return tuple(dict.fromkeys(_REFERENCE.findall(self.query)))

    def fill_in(self, values: Mapping[str, str]) -> str:
        """Return the query with every reference replaced by its value; values are not expanded again.

        >>> Node("C", "birthplace of $A", "General").fill_in({"A": "$B"})
        'birthplace of $B'
        """
        return _REFERENCE.sub(lambda name: values[name[1]], self.query)


@dataclass(frozen=True, slots=True)
class Graph:
    """Nodes in written order, and pairs of labels, of which the second waits for the first, without a cycle."""

    nodes: tuple[Node, ...]
    edges: tuple[tuple[str, str], ...] = ()


def parse(text: str, tools: Sequence[str], *, max_nodes: int = 8, max_words: int = 10) -> Graph | tuple[str, ...]:
    """Return the search graph in a text, which may be anything, or all reasons why it is none, each once (``REASONS``).

    A query has at most ``max_words`` words as the model wrote it; a reference is a word.

    >>> parse("Nodes:\\nA: mother of Ada Brown (General)\\nEdges:", ["General"])
    Graph(nodes=(Node(label='A', query='mother of Ada Brown', tool='General'),), edges=())
    >>> parse("Nodes:\\nA: mother of Ada (Web)\\nEdges: A -> B; A -> A", ["General"])
    ('unknown tool: Web', 'undeclared node: B', 'self-loop: A')
    """
    parts = list(_parts(text))
    headings = [kind for kind, _ in parts if kind in _HEADINGS]
    reasons = [f"foreign tag: {tag[:_SHOWN]}" for tag in _TAG.findall(text)]
    reasons += [f"missing heading: {name}" for name in _HEADINGS if name not in headings]
    if not reasons and tuple(headings) != _HEADINGS:
        reasons.append("headings out of order")
    reasons += [f"unreadable line: {rest[:_SHOWN]}" for kind, rest in parts if kind == "unreadable"]
    nodes = [_node(rest) for kind, rest in parts if kind == "node"]
    edges = tuple(dict.fromkeys(_edge(rest) for kind, rest in parts if kind == "edge"))
    reasons += _node_faults(nodes, tools, max_nodes, max_words)
    reasons += _edge_faults(nodes, edges)
    return tuple(dict.fromkeys(reasons)) or Graph(tuple(nodes), edges)


def levels(graph: Graph) -> list[tuple[Node, ...]]:
    """Return the nodes in levels, those that wait for none first; nodes of a level do not wait for each other.

    >>> a, b, c = (Node(label, "q", "General") for label in "ABC")
    >>> [[node.label for node in level] for level in levels(Graph((a, b, c), (("C", "A"),)))]
    [['B', 'C'], ['A']]
    """
    sorter = _sorter([node.label for node in graph.nodes], graph.edges)
    sorter.prepare()
    groups = []
    while sorter.is_active():
        ready = sorter.get_ready()
        groups.append(tuple(node for node in graph.nodes if node.label in ready))
        sorter.done(*ready)
    return groups


def ancestors(label: str, edges: Sequence[tuple[str, str]]) -> set[str]:
    """Return all labels from which edges lead to this one.

    >>> sorted(ancestors("C", [("A", "B"), ("B", "C"), ("C", "D")]))
    ['A', 'B']
    """
    labels: set[str] = set()
    pending = [label]
    while pending:
        child = pending.pop()
        new = {parent for parent, heir in edges if heir == child} - labels
        labels |= new
        pending += new
    return labels


def _parts(text: str) -> Iterator[tuple[str, str]]:
    """Yield each line's kind (a heading: "Nodes" or "Edges", a "node", an "edge" or "unreadable") and its text."""
    section = ""
    for line in text.splitlines():
        rest = line.strip()
        heading = _HEADING.fullmatch(rest)
        if heading:
            section, rest = heading[1], (heading[2] or "").strip()
            yield section, ""
        if section == "Edges":
            for edge in filter(None, map(str.strip, rest.split(";"))):
                yield ("edge" if all(_edge(edge)) else "unreadable"), edge
        elif rest:
            readable = section == "Nodes" and rest.endswith(")") and _NODE.fullmatch(rest) and "(" in rest
            yield ("node" if readable else "unreadable"), rest


def _node(line: str) -> Node:
    label, _, rest = line.partition(":")
    query, _, tool = rest.rpartition("(")
    return Node(label, " ".join(query.split()), tool[:-1].strip())


def _edge(text: str) -> tuple[str, str]:
    """Return both ends of an edge; ("", "") if the text is no edge."""
    left, arrow, right = (part.strip() for part in text.partition("->"))
    readable = left and right and arrow and "->" not in right and len(f"{left} {right}".split()) == 2
    return (left, right) if readable else ("", "")


def _node_faults(nodes: Sequence[Node], tools: Sequence[str], max_nodes: int, max_words: int) -> Iterator[str]:
    if not nodes:
        yield "no node"
    if len(nodes) > max_nodes:
        yield f"too many nodes: {len(nodes)}"
    labels = [node.label for node in nodes]
    yield from (f"duplicate label: {label}" for label in sorted(set(labels)) if labels.count(label) > 1)
    for node in nodes:
        words = len(node.query.split())
        if not words:
            yield f"node without query: {node.label}"
        if words > max_words:
            yield f"too many words: {node.label} has {words}"
        if node.tool not in tools:
            yield f"unknown tool: {node.tool[:_SHOWN]}"


def _edge_faults(nodes: Sequence[Node], edges: Sequence[tuple[str, str]]) -> Iterator[str]:
    labels = dict.fromkeys(node.label for node in nodes)
    yield from (f"undeclared node: {end[:_SHOWN]}" for edge in edges for end in edge if end not in labels)
    yield from (f"self-loop: {start[:_SHOWN]}" for start, end in edges if start == end)
    others = [(start, end) for start, end in edges if start != end and start in labels and end in labels]
    try:
        _sorter(labels, others).prepare()
    except CycleError as error:
        yield f"cycle: {' -> '.join(error.args[1])}"
    ancestors_of = {label: ancestors(label, others) - {label} for label in labels}
    for node in nodes:
        unreachable = [name for name in node.references if name not in ancestors_of[node.label]]
        yield from (f"reference to no ancestor: ${name} in {node.label}" for name in unreachable)


def _sorter(labels: Iterable[str], edges: Sequence[tuple[str, str]]) -> TopologicalSorter[str]:
    sorter: TopologicalSorter[str] = TopologicalSorter(dict.fromkeys(labels, ()))
    for start, end in edges:
        sorter.add(end, start)
    return sorter
