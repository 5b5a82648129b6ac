"""reports/index.html: one self-contained page that shows what a run learnt, and how sure we are."""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from harr.evaluate import flat_rows, headline, is_share, label, percent, spread
from harr.files import write_text
from harr.plots import arms, filter_histogram, hops, learning_curve

TEMPLATE = "report.html.j2"
SHOWN_METRICS = ("answer_f1", "answer_em", "all_gold", "recall", "recall_at_2", "recall_at_5", "reciprocal_rank")


def write_report(
    out: Path,
    *,
    summary: Mapping[str, Any],
    contrasts: Mapping[str, Any],
    curve: Sequence[Mapping[str, Any]],
    filter_rows: Sequence[Mapping[str, Any]],
    trajectories: Mapping[str, Any],
    facts: Mapping[str, str],
    links: Mapping[str, str],
) -> None:
    """Write the page. Every text from passages and questions is escaped; nothing is loaded from elsewhere.

    Args:
        out: path of the page.
        summary: arms and paired gains, as in metrics/evaluate.json.
        contrasts: further paired gains, as in metrics/contrasts.json.
        curve: one row per training step.
        filter_rows: one row per question that the filter tried.
        trajectories: as from ``evaluate.trajectories``.
        facts: names and values of what was run.
        links: names and relative addresses of further pages.
    """
    lead = headline(dict(summary))
    page = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    ).get_template(TEMPLATE)
    figures = {
        "arms": _inline(arms, flat_rows(dict(summary))),
        "curve": _inline(learning_curve, curve),
        "hops": _inline(hops, flat_rows(dict(summary))),
        "filter": _inline(filter_histogram, filter_rows),
    }
    text = page.render(
        lead=label(lead),
        arms=summary["arms"],
        lead_metric=lead,
        gain=summary["paired"].get("full", {}).get(lead),
        table=_table(summary),
        contrasts={
            pair: {label(m): _gain(m, g) for m, g in gains.items() if lead == m} for pair, gains in contrasts.items()
        },
        figures=figures,
        trajectories=trajectories,
        facts=facts,
        links=links,
        spread=spread,
        percent=percent,
    )
    write_text(out, text)


def _table(summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One row per metric and arm that a reader asks for: mean, gain over the baseline, p, n."""
    rows = []
    for prefix in ("", "given_"):
        for plain in SHOWN_METRICS:
            metric = prefix + plain
            for arm, metrics in summary["arms"].items():
                if metric in metrics:
                    gain = summary["paired"].get(arm, {}).get(metric)
                    mean = metrics[metric]
                    rows.append(
                        {
                            "metric": label(metric),
                            "arm": arm,
                            "mean": spread(mean, "mean"),
                            "gain": _gain(metric, gain) if gain else "",
                            "p": f"{gain['p']:.2g}" if gain else "",
                            "n": mean["n"],
                        }
                    )
    return rows


def _gain(metric: str, gain: Mapping[str, float]) -> str:
    return spread(gain, "gain", "+.1f") if is_share(metric) else f"{gain['gain']:+.2f}"


def _inline(plot: Any, rows: Any) -> Markup:
    """The SVG of a plot as part of the page; made by us, so it needs no escaping."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "plot.svg"
        plot(rows, path)
        svg = path.read_text(encoding="utf-8")
    return Markup(svg[svg.index("<svg") :])
