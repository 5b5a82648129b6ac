"""The headline of an evaluation: what ``trained`` reaches, and its gain over the strongest arm without training."""

import re
from collections.abc import Iterator

from harr.arms import TRAINED
from harr.evaluate.summary import Summary, flat_rows, headline, headlines, parts_of, rival_of
from harr.evaluate.tables import (
    comparisons,
    describe_silent_arms,
    is_share,
    label,
    level,
    table,
    verdict,
    warm_start_words,
    with_interval,
)


def headline_figures(summary: Summary) -> dict[str, float]:
    """Return metrics/headline.json: the leading metric of ``trained`` with the ``low`` and ``high`` end of its
    interval, the ``gain`` over the strongest arm without training with its interval, the number of questions ``n``,
    and ``runs``.

    With several settings, each has only its metric, gain and n, prefixed with the setting's name.

    Args:
        summary: metrics/evaluate.json, with metrics/contrasts.json as ``contrasts``.
    """
    figures: dict[str, float] = {}
    for setting, part, lead in scored_parts(summary):
        cell, gain = part["arms"][TRAINED][lead], comparisons(part, lead)[0].get(rival_of(part, lead), {})
        values = {lead: cell["mean"], "low": cell["low"], "high": cell["high"]}
        values |= {name: gain[key] for name, key in GAIN.items() if gain}
        values |= {"n": cell["n"], "runs": len(cell["seeds"])}
        if setting:
            values = {f"{setting}.{name}": values[name] for name in (lead, "gain", "n") if name in values}
        figures |= {plain_name(name): round(value, 3) for name, value in values.items()}
    return figures


GAIN = {"gain": "gain", "gain_low": "low", "gain_high": "high"}


def headline_words(summary: Summary) -> str:
    """Return what an evaluation means, in a sentence per setting, and a line for every arm that scored nothing."""
    lines = []
    for setting, part, lead in scored_parts(summary):
        before, cell, other = f"{setting}: " if setting else "", part["arms"][TRAINED][lead], rival_of(part, lead)
        count = len(cell["seeds"])
        on = f"on {cell['n']} questions" + (f", {count} run{'s' if count > 1 else ''}" if count else "")
        of = f"{' points' * is_share(lead)} of {label(lead)} ["
        if not (gain := comparisons(part, lead)[0].get(other)):
            lines.append(f"{before}{TRAINED} has {level(lead, cell['mean'])} {on}.")
            continue
        words = with_interval(lead, gain, "gain").replace(" [", of)
        sentence = f"{before}{TRAINED} {verdict(gain)} {other}, the best arm without training: {words} {on}."
        lines.append(f"{sentence} {warm_start_words(part, lead)}".strip())
    return "\n".join([*lines, *describe_silent_arms(summary)])


def plain_name(name: str) -> str:
    """Return a name with only the characters that MLflow accepts."""
    return re.sub(r"[^\w\-. /:]", "_", name)


def scored_parts(summary: Summary, arm: str = TRAINED) -> Iterator[tuple[str, Summary, str]]:
    """Yield the name, summary and leading metric of every setting in which an arm was scored."""
    for setting, part in parts_of(summary).items():
        if arm in part["arms"] and (lead := headline(part)) in part["arms"][arm]:
            yield setting, part, lead


def evaluation_note(summary: Summary) -> str:
    """Return the Markdown description of a run of the whole pipeline: what it means, and the table of arms."""
    return f"{headline_words(summary)}\n\n```text\n{table(summary)}\n```"


def arm_figures(summary: Summary) -> dict[str, float]:
    """Return an evaluation's figures for MLflow: every metric of ``trained``, the leading ones of the other arms, and
    the range over several runs."""
    leads = headlines(flat_rows(summary))
    figures: dict[str, float] = {}
    for arm, metrics in summary["arms"].items():
        for name, cell in metrics.items():
            if arm == TRAINED or name in leads:
                figures[f"{arm}/{name}"] = cell["mean"]
                if name in leads and len(cell["seeds"]) > 1:
                    ends = {"min": min(cell["seeds"]), "max": max(cell["seeds"])}
                    figures |= {f"{arm}/{name}.seeds_{end}": value for end, value in ends.items()}
    return figures
