"""Random and changed search graphs through the parser: ``python -m benchmarks.fuzz_graph [--blocks 100000]``.

No text may raise; every accepted graph has known tools, edges between declared nodes, no cycle and only references to
ancestors, which is checked here without the parser's own functions. Prints how often each reason was given.
"""

import argparse
import random
import time
from collections import Counter

from harr.rag.pipelines.graph import REASONS, Graph, levels, parse

TOOLS = ("General", "News", "Academy")
WORDS = ("mother", "of", "Ada", "Brown", "$A", "$B", "born", "the", "in", "$5", "(", "Bath?", "é", "母")
JUNK = (
    "<b>",
    "</search>",
    "->",
    ";",
    ":",
    "(",
    ")",
    "$",
    "\n",
    "\x00",
    "Nodes:",
    "Edges:",
    "**",
    "→",
    "\uff1a",
    "A",
    " ",
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
    """Parse a text and check what was accepted. Returns: the reasons, () for a graph."""
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


def main() -> None:
    """Parse ``--blocks`` texts and print the outcomes."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    options.add_argument("--blocks", type=int, default=100_000)
    options.add_argument("--seed", type=int, default=0)
    chosen = options.parse_args()
    source, counts, accepted, begin = random.Random(chosen.seed), Counter[str](), 0, time.perf_counter()
    for _ in range(chosen.blocks):
        reasons = check(random_text(source))
        accepted += not reasons
        counts.update({reason.partition(":")[0] for reason in reasons})
    seconds = time.perf_counter() - begin
    print(f"{chosen.blocks} blocks, {accepted} accepted, none raised, all accepted ones sound; {seconds:.1f} s")
    for reason in REASONS:
        print(f"{counts[reason]:>8} {reason}")


if __name__ == "__main__":
    main()
