"""Search graphs: what is one, why a text is not, and that no text breaks the parser."""

import random

from benchmarks.fuzz_graph import TOOLS, check, random_text
from harr.rag.pipelines.graph import REASONS, Graph, Node, levels, parse

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


def test_random_and_changed_blocks() -> None:
    """Like ``python -m benchmarks.fuzz_graph`` with fewer cases; both verdicts are frequent enough."""
    source = random.Random(0)
    accepted = sum(not check(random_text(source)) for _ in range(2000))
    assert 200 < accepted < 1800
