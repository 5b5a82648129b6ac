"""reports/preferences.html: queries tried, how often they paid, and examples; one self-contained page."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from harr.io.files import read_json, write_text
from harr.preferences.collect import read_preferences
from harr.report.html import render
from harr.report.plots import BLUE, GREEN, GREY, inline, styled

EXAMPLES = 12
"""Number of prompts that are shown, those with the largest differences of each hop first."""
Rows = Sequence[Mapping[str, Any]]


def write_page(folder: Path, out: Path) -> None:
    """Write the page about the preferences in ``folder``. Texts are escaped; nothing is loaded from elsewhere."""
    rows, prompts = read_preferences(folder), read_json(folder / "prompts.json")
    text = render(
        "preferences.html.j2",
        pairs=sum(len(row["pairs"]) for row in rows),
        held_out=sum(len(row["pairs"]) for row in rows if row["split"] == "held_out"),
        prompts=len(rows),
        questions=len({row["question_id"] for row in rows}),
        levels=inline(draw_levels(rows)),
        zero_shot=prompts["zero_shot"],
        sets=prompts["sets"],
        examples=examples(rows),
    )
    write_text(out, text)


def levels(rows: Rows) -> dict[int, Counter[float]]:
    """Return how often a query had each score, to two digits, by hop.

    >>> levels([{"hop": 1, "scores": [0.0, 0.333, 0.333]}])
    {1: Counter({0.33: 2, 0.0: 1})}
    """
    by_hop: dict[int, Counter[float]] = {}
    for row in rows:
        by_hop.setdefault(row["hop"], Counter()).update(round(score, 2) for score in row["scores"])
    return dict(sorted(by_hop.items()))


@styled
def draw_levels(rows: Rows) -> Figure:
    """Draw bars of :func:`levels`, the hops side by side."""
    by_hop = levels(rows)
    scores = sorted({level for counts in by_hop.values() for level in counts})
    figure = Figure(figsize=(5.8, 3.2), layout="constrained")
    axes = figure.subplots()
    for number, (hop, counts) in enumerate(by_hop.items()):
        places = [place + (number + 0.5) * 0.8 / len(by_hop) - 0.4 for place in range(len(scores))]
        colour = (BLUE, GREEN, GREY)[number % 3]
        axes.bar(places, [counts[level] for level in scores], 0.8 / len(by_hop), label=f"hop {hop}", color=colour)
    axes.set_xticks(range(len(scores)), [f"{level:g}" for level in scores], rotation=60 if len(scores) > 8 else 0)
    axes.set_xlabel("average precision")
    axes.set_ylabel("queries")
    axes.grid(visible=False, axis="x")
    axes.legend()
    return figure


def examples(rows: Rows) -> list[dict[str, Any]]:
    """Return the prompts with the largest differences, hops in turn, each with its queries from best to worst."""
    by_hop: dict[int, list[Mapping[str, Any]]] = {}
    for row in sorted(rows, key=lambda row: (row["scores"][0] - row["scores"][-1], row["id"])):
        by_hop.setdefault(row["hop"], []).append(row)
    ordered = [row for hop in sorted(by_hop) for row in by_hop[hop][: -(-EXAMPLES // len(by_hop))]]
    return [
        {**row, "ranked": list(zip(row["scores"], row["responses"], strict=True))[::-1]} for row in ordered[:EXAMPLES]
    ]
