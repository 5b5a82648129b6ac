"""Six independent queries of a source of the web against one after the other: `python -m benchmarks.sources`.

Prints the seconds of one call over the latency of one query, for a source that takes 200 ms and for three of them at
once, and what a source that hangs costs over its deadline.
"""

import time
from statistics import median

from harr.rag.sources.client import WebSource
from harr.rag.sources.router import Sources
from harr.types import Passage, Question, Search

LATENCY_SECONDS, DEADLINE_SECONDS = 0.2, 1.0
TIMES = 5


def slow(query: str, k: int) -> list[Passage]:
    """An answer after the latency."""
    time.sleep(LATENCY_SECONDS)
    return [Passage(query, query)] * k


def hanging(query: str, k: int) -> list[Passage]:
    """No answer within any deadline."""
    time.sleep(10 * DEADLINE_SECONDS)
    return []


def seconds(sources: Sources, tools: list[str], queries: int) -> float:
    """Return the median of ``TIMES`` seconds of one call with so many queries a tool."""
    took = []
    for number in range(TIMES):
        searches = [Search(Question("q", "?"), f"{number} {i}", tool=tool) for tool in tools for i in range(queries)]
        began = time.perf_counter()
        sources.retrieve(searches)
        took.append(time.perf_counter() - began)
    return median(took)


def main() -> None:
    """Print the three ratios."""
    tools = ["General", "News", "Academy"]
    web = {tool: WebSource(tool, slow, k=2, deadline_seconds=5.0) for tool in tools}
    one, three = seconds(Sources({}, web), tools[:1], 6), seconds(Sources({}, web), tools, 6)
    print(
        f"6 queries of {LATENCY_SECONDS:g} s: {one:.3f} s, {one / LATENCY_SECONDS:.2f} x the latency (wanted: below 2)"
    )
    print(f"6 queries of each of 3 sources: {three:.3f} s, {three / LATENCY_SECONDS:.2f} x")
    hung = {"General": WebSource("General", hanging, k=2, deadline_seconds=DEADLINE_SECONDS)}
    stuck = seconds(Sources({}, hung), tools[:1], 40)
    print(f"40 queries of a source that hangs: {stuck:.3f} s, {stuck / DEADLINE_SECONDS:.2f} x the deadline")


if __name__ == "__main__":
    main()
