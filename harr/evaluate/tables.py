"""Figures as text: metric names, shares in percent, and the table of arms."""

from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import Any

from harr.arms import ARMS, TRAINED
from harr.evaluate.summary import BEST_BY_KIND, Summary, baseline_of, flat_rows, headline, headlines, list_silent_arms
from harr.params.measures import MEASURES

LABELS = {
    "answer_f1": "answer F1",
    "answer_em": "answer EM",
    "semantic": "semantic (graded by the judge)",
    "semantic_f1": "semantic (answer F1, no judge)",
    "recall": "recall",
    "fact_em": "fact EM (all gold picked)",
    "fact_f1": "fact F1",
    "all_gold": "all gold found",
    **MEASURES,
    "mrr": "MRR of the best search",
    "format": "well-formed turns",
    "format_strict": "well-formed throughout",
    "pool_recall": "recall of the candidates",
    "answer_similarity": "answer similarity",
    "searches": "searches",
    "written_tokens": "tokens written",
    "context_words": "words of passages",
    "malformed": "malformed replies",
    "repeated_queries": "queries asked again",
    "answer_in_query": "answer in a query",
    "reward": "reward",
}
BY_HOP = {
    "hop_recall": "recall of hop",
    "pool_recall": "candidates' recall of hop",
    "recall_after": "recall after hop",
    "ap_after": "average precision after hop",
}
"""Metrics with a value per hop."""
SHARES = frozenset(LABELS) - {"searches", "written_tokens", "context_words", "malformed", "reward"}
"""Metrics between 0 and 1, shown in percent; the others are plain numbers."""


def label(metric: str) -> str:
    """Return a metric's display name.

    >>> label("given_hop_recall_2"), label("answer_f1")
    ('recall of hop 2, given passages', 'answer F1')
    """
    plain = metric.removeprefix("given_")
    if plain.startswith("pass_at_"):
        return f"pass@{plain.removeprefix('pass_at_')}" + ("" if metric == plain else ", given passages")
    stem, _, part = plain.rpartition("_")
    words = f"{BY_HOP[stem]} {part}" if stem in BY_HOP else LABELS.get(plain, plain)
    return words if plain == metric else f"{words}, given passages"


def is_share(metric: str) -> bool:
    """Return whether a metric is between 0 and 1 and shown in percent."""
    plain = metric.removeprefix("given_")
    return plain in SHARES or plain.rpartition("_")[0] in (*BY_HOP, "pass_at")


def table(summary: Summary, width: int = 100, *, markdown: bool = False) -> str:
    """Return the arms as plain text, shares in percent; below, the gains of ``trained`` over the others, in points of
    the leading metric, or else the gains over the baseline. Every setting has its own table.

    It has under 100 columns; for a smaller ``width``, metrics are left out from the end until it fits.
    ``markdown``: as Markdown tables.
    """
    grid_of = markdown_grid if markdown else _grid
    if settings := summary.get("settings"):
        tables = {name or "no setting": table(part, width, markdown=markdown) for name, part in settings.items()}
        return "\n\n".join(f"{name}\n{text}" for name, text in tables.items())
    lead = headline(summary)
    measured = {name for metrics in summary["arms"].values() for name in metrics}
    with_answers = {"answer_em": "EM", "all_gold": "all gold", "recall": "recall"}
    without = {name: MEASURES[name] for name in ("recall_at_2", "recall_at_5")}
    without |= {"given_all_gold": "given gold", "given_recall": "given recall"}
    ranked = {name: MEASURES[name] for name in ("ndcg_at_10", "reciprocal_rank", "recall_at_10")} | {"recall": "recall"}
    columns = (
        with_answers if lead == "answer_f1" else ranked if "ndcg_at_10" in headlines(flat_rows(summary)) else without
    )
    extra = dict([(name, words) for name, words in columns.items() if name in measured and name != lead][:3])
    while len(_grid(_arms(summary, lead, extra)).split("\n")[0]) > width and extra:
        extra.popitem()
    grid = grid_of(_arms(summary, lead, extra))
    compared, words = comparisons(summary, lead)
    if not compared:
        return grid
    title = f"{TRAINED} against" if summary.get("contrasts") else f"over {baseline_of(summary)}"
    gains = [[arm, spread(gain, "gain", "+.1f"), p_value(gain)] for arm, gain in compared.items()]
    words = words if max(map(len, words.split("\n"))) <= width else fill(words.replace("\n", " "), width)
    if markdown:
        words = "\n" + words.replace("\n", " ")  # a paragraph, which the reader's screen wraps
    rows = [[title, "points [95 %]", "p"], *gains]
    kinds = _by_kind(summary)
    return f"{grid}\n\n{grid_of(rows)}\n{words}" + (f"\n\n{grid_of(kinds)}" if kinds else "")


def _arms(summary: Summary, lead: str, extra: Mapping[str, str]) -> list[list[str]]:
    """Return one row per arm with the metric ``lead`` and the ``extra`` ones, by heading."""
    rows = [["arm", f"{label(lead)} % [95 %]", "runs", *extra.values(), "n"]]
    for arm, metrics in summary["arms"].items():
        cells = [percent(metrics[name]["mean"]) if name in metrics else "-" for name in extra]
        main = metrics.get(lead)
        lead_cells = [spread(main, "mean"), runs(main["seeds"])] if main else ["-", ""]
        rows.append([arm, *lead_cells, *cells, str(main["n"] if main else 0)])
    return rows


def _grid(rows: Sequence[Sequence[str]]) -> str:
    """Return cells in columns, the first left-aligned, the others right-aligned."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [[row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])] for row in rows]
    return "\n".join("  ".join(cells).rstrip() for cells in lines)


def markdown_grid(rows: Sequence[Sequence[str]]) -> str:
    r"""Return cells as a Markdown table, with empty lines around it.

    >>> markdown_grid([["arm", "n"], ["trained", "3"]])
    '\n| arm | n |\n|---|--:|\n| trained | 3 |\n'
    """
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(["", lines[0], "|---" + "|--:" * (len(rows[0]) - 1) + "|", *lines[1:], ""])


def _by_kind(summary: Summary) -> list[list[str]]:
    """Return the kinds of question, each with n, the mean of ``trained``, and the best other arm that is not a
    ceiling."""
    kinds: Mapping[str, Mapping[str, Mapping[str, Any]]] = summary.get("kinds", {})
    rows = [["kind", "n", f"{TRAINED} %", "best other arm"]]
    for kind, arms in kinds.items():
        others = [arm for arm in arms if arm not in (TRAINED, BEST_BY_KIND) and not (arm in ARMS and ARMS[arm].ceiling)]
        best = max(others, key=lambda arm: arms[arm]["mean"], default="")
        trained = percent(arms[TRAINED]["mean"]) if TRAINED in arms else "-"
        other = f"{best} {percent(arms[best]['mean'])}" if best else "-"
        rows.append([kind or "none", str(max(cell["n"] for cell in arms.values())), trained, other])
    return rows if kinds else []


def comparisons(summary: Summary, lead: str) -> tuple[dict[str, dict[str, Any]], str]:
    """Return the gains of ``trained`` over every other arm in the metric ``lead``, holding simultaneously, and a text
    on what they rest on; without ``trained``, the others' gains over the baseline, each by itself.

    Gains are by arm. One over an arm that scored nothing (:func:`list_silent_arms`) is left out, and the text names
    that arm. One with an arm that was trained once has no ``p``.
    """
    silent = list_silent_arms(summary)
    faults = "".join(f"\n{line}" for line in describe_silent_arms(summary))
    contrasts = {pair: gains[lead] for pair, gains in summary.get("contrasts", {}).items() if lead in gains}
    if not contrasts:
        paired = {} if baseline_of(summary) in silent else summary["paired"]
        alone = {arm: dict(gains[lead]) for arm, gains in paired.items() if lead in gains}
        words = "Each comparison by itself; the intervals are over questions." if alone else ""
        return alone, words + faults if alone else ""
    gains = {pair.removeprefix(f"{TRAINED}-"): dict(gain) for pair, gain in contrasts.items()}
    together = {arm: gain | gain.get("family", {}) for arm, gain in gains.items() if arm not in silent}
    at_once = f"hold for all {len(gains)} comparisons at once (min-P)" if len(gains) > 1 else ""
    if any("p" not in gain for gain in gains.values()):
        once = "Trained arms have 1 run: no p values; intervals are over questions and say nothing\nof other seeds"
        return together, (f"{once}; they {at_once}." if at_once else f"{once}.") + faults
    seeds = max(len(gain["seeds"]) for gain in gains.values())
    over = f"Intervals are over {f'{seeds} seeds and all questions' if seeds else 'questions'}"
    return together, (f"{over}; they and the p values\n{at_once}." if at_once else f"{over}.") + faults


def describe_silent_arms(summary: Summary) -> list[str]:
    """Return one line for every arm that scored nothing."""
    tail = "scores 0.0 on all questions, which is a fault and no rival; see what it found in the report"
    return [f"{arm} {tail}." for arm in list_silent_arms(summary)]


def runs(seeds: Sequence[float]) -> str:
    """Return how often an arm was trained, and the range of its runs' means in percent.

    >>> runs([0.985, 0.998, 0.96]), runs([0.985]), runs([])
    ('3: 96.0 to 99.8', '1 run', '')
    """
    if len(seeds) < 2:
        return "1 run" if seeds else ""
    return f"{len(seeds)}: {percent(min(seeds))} to {percent(max(seeds))}"


def p_value(gain: Mapping[str, Any]) -> str:
    """Return p with two digits; ``1 run`` if a compared arm was trained once.

    >>> p_value({"p": 0.0213}), p_value({})
    ('0.021', '1 run')
    """
    return f"{gain['p']:.2g}" if "p" in gain else "1 run"


def percent(share: float, form: str = ".1f") -> str:
    """Return a share in percent, with one decimal; a share read from a file, with six decimals, gives the same.

    >>> percent(0.4567), percent(0.157499999999), percent(0.1575)
    ('45.7', '15.8', '15.8')
    """
    return format(100 * round(share, 6), form)


def spread(values: Mapping[str, float], centre: str, form: str = ".1f") -> str:
    """Return a mean or gain with its interval, in percent.

    >>> spread({"gain": 0.5, "low": -0.25, "high": 1.0}, "gain", "+.1f")
    '+50.0 [-25.0, +100.0]'
    """
    middle, low, high = (percent(values[key], form) for key in (centre, "low", "high"))
    return f"{middle} [{low}, {high}]"


def verdict(gain: Mapping[str, float]) -> str:
    """Return the verdict of a gain's interval on an arm and the one it is compared with.

    >>> verdict({"low": 0.1, "high": 0.2}), verdict({"low": -0.1, "high": 0.2})
    ('beats', 'cannot be told apart from')
    """
    return "beats" if gain["low"] > 0 else "stays behind" if gain["high"] < 0 else "cannot be told apart from"


def warm_start_words(summary: Summary, lead: str) -> str:
    """Return a sentence on what the warm start gained and what training by reward gained after it; "" without one."""
    first = summary["paired"].get("warm_start", {}).get(lead)
    then = comparisons(summary, lead)[0].get("warm_start")
    if not first or not then:
        return ""
    gains = [with_interval(lead, gain, "gain") + " points" * is_share(lead) for gain in (first, then)]
    return f"The warm start gained {gains[0]} over {baseline_of(summary)}, and training by reward {gains[1]} over that."


def level(metric: str, value: float) -> str:
    """Return a mean with its metric's name.

    >>> level("ndcg_at_10", 0.315), level("searches", 2.0)
    ('31.5 % nDCG@10', '2.000 searches')
    """
    return f"{f'{percent(value)} %' if is_share(metric) else f'{value:.3f}'} {label(metric)}"


def with_interval(metric: str, values: Mapping[str, float], centre: str) -> str:
    """Return a mean or gain with its interval: a share in percent or points, otherwise a plain number.

    >>> with_interval("recall", {"mean": 0.5, "low": 0.25, "high": 0.75}, "mean")
    '50.0 [25.0, 75.0]'
    """
    sign = "+" if centre == "gain" else ""
    return spread(values, centre, f"{sign}.1f") if is_share(metric) else plain(values, centre, f"{sign}.3f")


def plain(values: Mapping[str, float], centre: str, form: str) -> str:
    """Return a mean or gain with its interval, as plain numbers.

    >>> plain({"gain": 0.5, "low": -0.25, "high": 1.0}, "gain", "+.2f")
    '+0.50 [-0.25, +1.00]'
    """
    middle, low, high = (format(values[key], form) for key in (centre, "low", "high"))
    return f"{middle} [{low}, {high}]"
