"""Readable facts of a registered version: tags of figures with intervals and n, and a description."""

from collections.abc import Iterator

from harr.arms import TRAINED
from harr.evaluate.summary import Summary, baseline_of, rival_of
from harr.evaluate.tables import comparisons, label, p_value, runs, table, with_interval
from harr.services.model_registry import SCHEME
from tasks.headline import headline_words, plain_name, scored_parts

MOST = 4800
"""Most characters of a description; MLflow keeps 5,000."""
LOADING = """\
```python
import harr, mlflow

# searches, and writes states by itself; index: a project's folder
retriever = harr.Retriever.load("{uri}", index=".")
# predict(questions) gives their passages
service = mlflow.pyfunc.load_model("{uri}")
# of an arm with vectors: encode_query reads states, encode_document passages
model = mlflow.sentence_transformers.load_model("{uri}")
```

`harr pull {uri} DIR` downloads the folder and checks every hash."""


def figure_tags(summary: Summary, own: str) -> dict[str, str]:
    """Return the leading figures, a line each: of a version's arm, of what it began as, and of the strongest untrained
    arm, with the gains of ``trained`` over these.

    Args:
        summary: metrics/evaluate.json, with metrics/contrasts.json as ``contrasts``.
        own: the version's arm.
    """
    tags = {}
    for setting, part, lead in scored_parts(summary, own):
        before = f"{setting}: " if setting else ""
        gains = comparisons(part, lead)[0] if own == TRAINED else {}
        for name, arm in _arms(part, lead, own).items():
            cell = part["arms"][arm][lead]
            line = f"{arm}: {label(lead)} {with_interval(lead, cell, 'mean')}, n {cell['n']}"
            line += f", {runs(cell['seeds'])}" if cell["seeds"] else ""
            if arm in gains:
                gain = gains[arm]
                once = f", p {p_value(gain)}" if "p" in gain else ""
                line += f"; {TRAINED} gains {with_interval(lead, gain, 'gain')}{once}"
            tags[plain_name(f"{before}{name}")] = line
    return tags


def describe(summary: Summary, what: str, name: str, number: str, *, loads: bool) -> str:
    """Return a version's description in Markdown: what it is and shows, the table of arms, how to load it."""
    meaning = headline_words(summary)
    use = LOADING.format(uri=f"{SCHEME}{name}/{number}") if loads else f"`harr pull {SCHEME}{name}/{number} DIR`"
    arms = "\n".join(_cut_lines(table(summary).splitlines(), MOST - len(what) - len(meaning) - len(use)))
    return f"{what}\n\n{meaning}\n\n```text\n{arms}\n```\n\n{use}"


def _cut_lines(lines: list[str], most: int) -> Iterator[str]:
    """Yield the first lines up to ``most`` characters; if some are left out, a line that says so."""
    room = most - len("... (metrics/evaluate.json)") - 20
    for line in lines:
        room -= len(line) + 1
        if room < 0:
            yield "... (metrics/evaluate.json)"
            return
        yield line


def _arms(part: Summary, lead: str, own: str) -> dict[str, str]:
    """Return the arms of the tags, by tag name."""
    arms = {
        "figure": own,
        "figure before training": baseline_of(part),
        "figure of the best simple arm": rival_of(part, lead),
    }
    return {name: arm for name, arm in arms.items() if lead in part["arms"].get(arm, {})}
