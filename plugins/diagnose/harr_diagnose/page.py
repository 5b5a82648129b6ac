"""diagnosis/index.html: what `harr diagnose` found, on one self-contained page."""

from collections.abc import Sequence
from pathlib import Path

from harr.evaluate.summary import Summary, flat_rows
from harr.evaluate.tables import percent, table
from harr.io.files import write_text
from harr.report.html import render
from harr.report.plots import draw_arms, inline
from harr_diagnose.advice import Figures


def write_diagnosis(
    out: Path, figures: Figures, advice: Sequence[str], summary: Summary, played: tuple[int, str, str]
) -> None:
    """Write the page; texts are escaped, and nothing is loaded from elsewhere.

    Args:
        out: path of the page.
        figures: figures that the advice was drawn from.
        advice: sentences on what to do, the most important first.
        summary: untrained arms and paired gains, with intervals.
        played: number of questions, their paths, and what was searched: ``corpus`` or ``question``, its given passages.
    """
    questions, file, where = played
    what = "gold" if figures.by_share else "questions with all gold"
    later = f"of {figures.later_queries:,.0f} later queries, ambiguous without the history"
    sampled = f"of {figures.rolled_out:,.0f} questions whose rollouts were compared"
    known = [
        (f"{what} found by the best untrained arm", figures.found),
        *((f"the same among the {depth} nearest passages of its searches", v) for depth, v in figures.all_gold.items()),
        *([(later, figures.ambiguous_share)] if figures.later_queries else []),
        (f"{sampled}, those that disagree", figures.disagreeing),
        (f"{sampled}, those that are all right", figures.all_right),
        ("smallest gain that the test questions show (power 80 %), in points", figures.detectable),
    ]
    text = render(
        "page.html.j2",
        Path(__file__).parent,
        advice=advice,
        metric=figures.metric,
        questions=questions,
        file=file,
        where="only the passages given with the question" if where == "question" else "the whole corpus",
        figures=[(words, percent(value)) for words, value in known],
        needed=figures.needed,
        arms=inline(draw_arms(flat_rows(summary))),
        table=table(summary),
    )
    write_text(out, text)
