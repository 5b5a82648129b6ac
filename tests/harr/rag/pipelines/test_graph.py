"""Search graphs: what is one, why a text is not, and that no text breaks the parser."""

import random

from harr.rag.pipelines.graph import REASONS, Graph, Node, levels, parse

TOOLS = ("General", "News", "Academy")
WORDS = ("mother", "of", "Ada", "Brown", "$A", "$B", "born", "the", "in", "$5", "(", "Bath?", "é", "母")
JUNK = (*";:()$\n\x00→\uff1aA ", "<b>", "</search>", "->", "Nodes:", "Edges:", "**")
GOOD = "Nodes:\nA: mother of Ada Brown (General)\nB: birthplace of $A (News)\nEdges:\nA -> B"


def graph(nodes: str, edges: str = "") -> str:
    return f"Nodes:\n{nodes}\nEdges:\n{edges}"


def test_nodes_edges_and_levels() -> None:
    found = parse(GOOD, TOOLS)
    expected = (Node("A", "mother of Ada Brown", "General"), Node("B", "birthplace of $A", "News"))
    assert found == Graph(expected, (("A", "B"),))
    text = graph("C: c $A (News)\nA: a (b) (General)\nB: b (Academy)\nD: d (News)", "A -> C; B -> C\nC->D; A -> C;")
    found = parse(text, TOOLS)
    assert isinstance(found, Graph) and found.nodes[1].query == "a (b)"
    assert found.edges == (("A", "C"), ("B", "C"), ("C", "D"))
    assert [[node.label for node in level] for level in levels(found)] == [["A", "B"], ["C"], ["D"]]


def test_blanks_and_headings_are_free() -> None:
    for text in (
        "\n\n  Nodes:\r\n\n A:  mother of   Ada ( General ) \r\nEdges:\n",
        "Nodes\nA: mother of Ada (General)\nEdges",
        "Nodes: A: mother of Ada (General)\nEdges:",
    ):
        assert parse(text, TOOLS) == Graph((Node("A", "mother of Ada", "General"),)), text


NONE = [
    (graph("A: q (Banana)"), ["unknown tool: Banana"]),
    (graph("A: q (general)"), ["unknown tool: general"]),
    (graph("A: q ()"), ["unknown tool: "]),
    (graph("A: q (News)", "A -> B"), ["undeclared node: B"]),
    (graph("A: q (News)\nB: q (News)", "a -> B"), ["undeclared node: a"]),  # case matters
    (graph("A: q (News)", "A -> A"), ["self-loop: A"]),
    (graph("A: q (News)\nB: q (News)", "A -> B; B -> A"), ["cycle: A -> B -> A"]),
    (graph("\n".join(f"{label}: q (News)" for label in "ABCDEFGHI")), ["too many nodes: 9"]),
    (graph("A: a b c d e f g h i j k (News)"), ["too many words: A has 11"]),
    (graph("A: q (News)\nA: r (News)"), ["duplicate label: A"]),
    (graph("A: <b>q</b> (News)"), ["foreign tag: <b>", "foreign tag: </b>"]),
    (graph("A: q <|im_end|> (News)"), ["foreign tag: <|im_end|>"]),
    ("Nodes:\nA: q (News)", ["missing heading: Edges"]),
    ("A: q (News)\nEdges:", ["missing heading: Nodes", "unreadable line: A: q (News)", "no node"]),
    ("Edges:\nNodes:\nA: q (News)", ["headings out of order"]),
    (f"{GOOD}\nEdges:", ["headings out of order"]),
    (graph(""), ["no node"]),
    (graph("A: (News)"), ["node without query: A"]),
    (graph("A: q"), ["unreadable line: A: q", "no node"]),
    (graph("a: q (News)"), ["unreadable line: a: q (News)", "no node"]),
    (graph("- A: q (News)\nB: q (News)"), ["unreadable line: - A: q (News)"]),
    (graph("A: q (News)\nB: q (News)\nC: q (News)", "A -> B -> C"), ["unreadable line: A -> B -> C"]),
    (graph("A: q (News)\nB: q (News)", "A to B"), ["unreadable line: A to B"]),
    (graph("A: q (News)\nB: of $A (News)"), ["reference to no ancestor: $A in B"]),
    (graph("A: q (News)\nB: of $a (News)", "A -> B"), ["reference to no ancestor: $a in B"]),
    (graph("A: of $A (News)"), ["reference to no ancestor: $A in A"]),
    ("", ["missing heading: Nodes", "missing heading: Edges", "no node"]),
]


def test_why_a_text_is_no_graph() -> None:
    for text, reasons in NONE:
        assert parse(text, TOOLS) == tuple(reasons), text
    assert {reason.partition(":")[0] for _, reasons in NONE for reason in reasons} == set(REASONS)


def test_a_reference_may_skip_a_generation_and_limits_are_parameters() -> None:
    text = graph("A: a b (News)\nB: b (News)\nC: of $A (News)", "A -> B; B -> C")
    assert isinstance(parse(text, TOOLS), Graph)
    assert parse(text, TOOLS, max_nodes=2, max_words=1) == (
        "too many nodes: 3",
        "too many words: A has 2",
        "too many words: C has 2",
    )


def random_text(source: random.Random) -> str:
    """Return a graph as a model might write it: half of them with a few characters changed, some pure nonsense."""
    if source.random() < 0.02:
        return "".join(source.choice(JUNK) for _ in range(source.randrange(60)))
    labels = "ABCDEFGHIJ"[: source.choice((1, 2, 2, 3, 3, 4, 5, 8, 9))]
    edges = [(a, b) for a in labels for b in labels if a < b and source.random() < 0.4]
    if source.random() < 0.15:
        edges.append((source.choice(labels), source.choice(labels + "Z")))
    lines = ["Nodes:"]
    for label in labels:
        words = [source.choice(WORDS[:4]) for _ in range(source.randrange(1, 7))]
        parents = [a for a, b in edges if b == label]
        words += [f"${source.choice(parents)}"] if parents and source.random() < 0.5 else []
        words += [source.choice(WORDS)] if source.random() < 0.05 else []
        tool = source.choice(TOOLS) if source.random() < 0.97 else source.choice(("Web", "", "news"))
        lines.append(f"{label}: {' '.join(words)} ({tool})")
    divider = source.choice(("\n", "; "))
    text = "\n".join([*lines, "Edges:", divider.join(f"{a} -> {b}" for a, b in edges)])
    for _ in range(source.randrange(4) if source.random() < 0.5 else 0):
        place = source.randrange(len(text) + 1)
        text = text[:place] + source.choice((*JUNK, "", "")) + text[place + source.randrange(3) :]
    return text


def check(text: str) -> tuple[str, ...]:
    """Parse a text. A graph has known tools, edges between declared nodes, no cycle, and only references to ancestors.

    Returns: the reasons of a refusal; () for a graph.
    """
    found = parse(text, TOOLS)
    if not isinstance(found, Graph):
        assert found and all(reason.partition(":")[0] in REASONS for reason in found), found
        return found
    labels = [node.label for node in found.nodes]
    assert 1 <= len(labels) <= 8 and len(set(labels)) == len(labels), found
    assert all(node.tool in TOOLS and 1 <= len(node.query.split()) <= 10 for node in found.nodes), found
    assert {end for edge in found.edges for end in edge} <= set(labels), found
    order = [node.label for level in levels(found) for node in level]
    assert sorted(order) == sorted(labels), found
    assert all(order.index(start) < order.index(end) for start, end in found.edges), found  # so there is no cycle
    reach = set(found.edges)
    for middle in labels:
        reach |= {(a, b) for a in labels for b in labels if (a, middle) in reach and (middle, b) in reach}
    assert all((name, node.label) in reach for node in found.nodes for name in node.references), found
    return ()


def test_random_and_changed_blocks() -> None:
    """Both verdicts are frequent enough."""
    source = random.Random(0)
    accepted = sum(not check(random_text(source)) for _ in range(2000))
    assert 200 < accepted < 1800
