"""Figures as text: metrics in words, shares in percent, and the table of arms."""

from collections.abc import Mapping

from harr.evaluate.summary import Summary, baseline_of, headline

LABELS = {
    "answer_f1": "answer F1",
    "answer_em": "answer EM",
    "semantic": "semantic (graded by the judge)",
    "semantic_f1": "semantic (answer F1, no judge)",
    "recall": "recall",
    "fact_em": "fact EM (all gold picked)",
    "fact_f1": "fact F1",
    "all_gold": "all gold found",
    "recall_at_2": "recall at 2",
    "recall_at_5": "recall at 5",
    "recall_at_10": "recall at 10",
    "ndcg_at_10": "nDCG at 10",
    "reciprocal_rank": "MRR",
    "mrr": "MRR of the best search",
    "format": "well-formed turns",
    "answer_similarity": "answer similarity",
    "searches": "searches",
    "context_words": "words of passages",
    "malformed": "malformed replies",
    "repeated_queries": "queries asked again",
    "answer_in_query": "answer in a query",
    "hops_cut": "hops cut in the state",
    "hops_dropped": "hops dropped from the state",
    "question_cut": "states with a cut question",
    "reward": "reward",
}
BY_HOP = {"hop_recall": "recall of hop", "recall_after": "recall after hop", "ap_after": "average precision after hop"}
"""Metrics that are told hop by hop."""
SHARES = frozenset(LABELS) - {"searches", "context_words", "malformed", "reward"}
"""Metrics between 0 and 1, shown in percent; the others are plain numbers."""


def label(metric: str) -> str:
    """Return a metric's name in words.

    >>> label("given_hop_recall_2"), label("answer_f1")
    ('recall of hop 2, given passages', 'answer F1')
    """
    plain = metric.removeprefix("given_")
    if plain.startswith("pass_at_"):
        return f"pass@{plain.removeprefix('pass_at_')}" + ("" if metric == plain else ", given passages")
    stem, _, number = plain.rpartition("_")
    words = f"{BY_HOP[stem]} {number}" if stem in BY_HOP else LABELS.get(plain, plain)
    return words if plain == metric else f"{words}, given passages"


def is_share(metric: str) -> bool:
    """Return whether a metric is between 0 and 1, and is shown in percent."""
    plain = metric.removeprefix("given_")
    return plain in SHARES or plain.rpartition("_")[0] in (*BY_HOP, "pass_at")


def table(summary: Summary) -> str:
    """Return the arms as plain text, under 100 columns wide; shares in percent, gains in points of the lead metric."""
    lead = headline(summary)
    measured = {name for metrics in summary["arms"].values() for name in metrics}
    with_answers = {"answer_em": "EM", "all_gold": "all gold", "recall": "recall"}
    without = {"recall_at_2": "R@2", "recall_at_5": "R@5"}
    without |= {"given_all_gold": "given gold", "given_recall": "given recall"}
    ranked = {"ndcg_at_10": "nDCG@10", "reciprocal_rank": "MRR", "recall_at_10": "R@10", "recall": "recall"}
    wanted = with_answers if lead == "answer_f1" else ranked if "ndcg_at_10" in measured else without
    extra = dict([(name, words) for name, words in wanted.items() if name in measured and name != lead][:3])
    baseline = baseline_of(summary)
    gain_titles = [f"gain over {baseline} [95 %]", "p"] if summary["paired"] else []
    grid = [["arm", f"{label(lead)} % [95 %]", *extra.values(), "n", *gain_titles]]
    for arm, metrics in summary["arms"].items():
        cells = [percent(metrics[name]["mean"]) if name in metrics else "-" for name in extra]
        main, gain = metrics.get(lead), summary["paired"].get(arm, {}).get(lead)
        tail = [spread(gain, "gain", "+.1f"), f"{gain['p']:.2g}"] if gain else ["", ""][: len(gain_titles)]
        grid.append([arm, spread(main, "mean") if main else "-", *cells, str(main["n"] if main else 0), *tail])
    widths = [max(map(len, column)) for column in zip(*grid, strict=True)]
    lines = [[row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])] for row in grid]
    return "\n".join("  ".join(cells).rstrip() for cells in lines)


def percent(share: float, form: str = ".1f") -> str:
    """Return a share in percent, with one decimal.

    >>> percent(0.4567)
    '45.7'
    """
    return format(100 * share, form)


def spread(values: Mapping[str, float], centre: str, form: str = ".1f") -> str:
    """Return a mean or gain with its interval, in percent.

    >>> spread({"gain": 0.5, "low": -0.25, "high": 1.0}, "gain", "+.1f")
    '+50.0 [-25.0, +100.0]'
    """
    middle, low, high = (percent(values[key], form) for key in (centre, "low", "high"))
    return f"{middle} [{low}, {high}]"


def plain(values: Mapping[str, float], centre: str, form: str) -> str:
    """Return a mean or gain with its interval, as plain numbers.

    >>> plain({"gain": 0.5, "low": -0.25, "high": 1.0}, "gain", "+.2f")
    '+0.50 [-0.25, +1.00]'
    """
    middle, low, high = (format(values[key], form) for key in (centre, "low", "high"))
    return f"{middle} [{low}, {high}]"
