"""What a person reads of a registered version: figures with intervals and n, as tags, a description, and metrics."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from harr.arms import ARMS, FULL
from harr.evaluate.summary import BEST_BY_KIND, Summary, baseline_of, headline, parts_of
from harr.evaluate.tables import comparisons, is_share, label, p_value, plain, runs, spread, table
from harr.services.model_registry import SCHEME

MOST = 4800
"""Characters of a description; MLflow keeps 5,000."""
LOADING = """\
```python
import harr, mlflow

retriever = harr.Retriever.load("{uri}", index="folder of a project")  # searches, with states by itself
model = mlflow.sentence_transformers.load_model("{uri}")  # encode_query reads states, encode_document passages
service = mlflow.pyfunc.load_model("{uri}")  # predict(texts) is encode_query
```

`harr pull {uri} DIR` downloads the folder and checks every hash."""


def figure_tags(summary: Summary) -> dict[str, str]:
    """Return the leading figures in a line each: of ``full``, of what it began as, and of the strongest arm without
    training, with what ``full`` gains over these.

    Args:
        summary: metrics/evaluate.json, with metrics/contrasts.json as ``contrasts``.
    """
    tags = {}
    for setting, part, lead in _parts(summary):
        before = f"{setting}: " if setting else ""
        gains, _ = comparisons(part, lead)
        for name, arm in _arms(part, lead).items():
            cell = part["arms"][arm][lead]
            told = f"{arm}: {label(lead)} {_with_interval(lead, cell, 'mean')}, n {cell['n']}"
            told += f", {runs(cell['seeds'])}" if cell["seeds"] else ""
            if arm in gains:
                gain = gains[arm]
                once = f", p {p_value(gain)}" if "p" in gain else ""
                told += f"; {FULL} gains {_with_interval(lead, gain, 'gain')}{once}"
            tags[_plain(f"{before}{name}")] = told
    return tags


def headline_metrics(summary: Summary) -> dict[str, float]:
    """Return the leading figures by the names of metrics: ``full.answer_f1``, ``full.answer_f1.low`` and ``.high``.

    The argument is that of :func:`figure_tags`.
    """
    metrics: dict[str, float] = {}
    for setting, part, lead in _parts(summary):
        before = f"{setting}." if setting else ""
        gains, _ = comparisons(part, lead)
        for arm in dict.fromkeys(_arms(part, lead).values()):
            metrics |= _named(f"{before}{arm}.{lead}", part["arms"][arm][lead], "mean")
            if arm in gains:
                metrics |= _named(f"{before}gain_over_{arm}.{lead}", gains[arm], "gain")
    return {_plain(name): value for name, value in metrics.items()}


def describe(summary: Summary, what: str, name: str, number: str, *, loads: bool) -> str:
    """Return the description of a version, in Markdown: what it is, the table of arms, and how it is loaded."""
    use = LOADING.format(uri=f"{SCHEME}{name}/{number}") if loads else f"`harr pull {SCHEME}{name}/{number} DIR`"
    arms = "\n".join(_within(table(summary).splitlines(), MOST - len(what) - len(use)))
    return f"{what}\n\n```text\n{arms}\n```\n\n{use}"


def _plain(name: str) -> str:
    """Return a name of the letters that MLflow takes."""
    return re.sub(r"[^\w\-. /:]", "_", name)


def _within(lines: list[str], most: int) -> Iterator[str]:
    """Yield the first lines of so many characters; where some are left out, a line that says so."""
    left = most - len("... (metrics/evaluate.json)") - 20
    for line in lines:
        left -= len(line) + 1
        if left < 0:
            yield "... (metrics/evaluate.json)"
            return
        yield line


def _parts(summary: Summary) -> Iterator[tuple[str, Summary, str]]:
    """Yield the name, summary and leading metric of every setting in which ``full`` was scored."""
    for setting, part in parts_of(summary).items():
        if FULL in part["arms"] and (lead := headline(part)) in part["arms"][FULL]:
            yield setting, part, lead


def _arms(part: Summary, lead: str) -> dict[str, str]:
    """Return the arms that are told of, by what they are."""
    simple = [
        arm
        for arm, metrics in part["arms"].items()
        if lead in metrics and arm != BEST_BY_KIND and arm in ARMS and not (ARMS[arm].trained or ARMS[arm].ceiling)
    ]
    strongest = max(simple, key=lambda arm: part["arms"][arm][lead]["mean"], default="")
    told = {
        "figure": FULL,
        "figure before training": baseline_of(part),
        "figure of the best simple arm": strongest,
    }
    return {name: arm for name, arm in told.items() if lead in part["arms"].get(arm, {})}


def _with_interval(metric: str, cell: Mapping[str, Any], centre: str) -> str:
    sign = "+" if centre == "gain" else ""
    return spread(cell, centre, f"{sign}.1f") if is_share(metric) else plain(cell, centre, f"{sign}.3f")


def _named(name: str, cell: Mapping[str, Any], centre: str) -> dict[str, float]:
    return {name: cell[centre], f"{name}.low": cell["low"], f"{name}.high": cell["high"]}
