"""diagnosis/index.html: what `harr diagnose` found, on one self-contained page."""

from collections.abc import Sequence
from pathlib import Path

from harr.diagnose.advice import Figures
from harr.evaluate.summary import Summary, flat_rows
from harr.evaluate.tables import percent, table
from harr.io.files import write_text
from harr.report.html import render
from harr.report.plots import draw_arms, inline


def write_diagnosis(
    out: Path, figures: Figures, advice: Sequence[str], summary: Summary, questions: int, file: str
) -> None:
    """Write the page; texts are escaped, and nothing is loaded from elsewhere.

    Args:
        out: path of the page.
        figures: what the advice was drawn from.
        advice: sentences on what to do, the most telling first.
        summary: untrained arms and paired gains, with intervals.
        questions: number of questions that were played.
        file: path that they are from.
    """
    known = [
        ("questions with all gold found by the best untrained arm", figures.found),
        *((f"the same among the {depth} nearest passages of its searches", v) for depth, v in figures.all_gold.items()),
        (f"of {figures.later_queries:,.0f} later queries, ambiguous without the history", figures.ambiguous_share),
        ("questions whose rollouts disagree", figures.disagreeing),
        ("questions whose rollouts are all right", figures.all_right),
        ("smallest gain that the test questions show (power 80 %), in points", figures.detectable),
    ]
    text = render(
        "diagnosis.html.j2",
        advice=advice,
        metric=figures.metric,
        questions=questions,
        file=file,
        figures=[(words, percent(value)) for words, value in known],
        needed=figures.needed,
        arms=inline(draw_arms(flat_rows(summary))),
        table=table(summary),
    )
    write_text(out, text)
