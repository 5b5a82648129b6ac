"""Outputs of stage evaluate."""

from typing import Any

from harr.errors import DamagedFile, HarrError
from harr.io.files import read_state
from harr.params import Params
from tasks.evaluation_record import describe_corpus
from tasks.paths import METRICS

PLAYS = "plays.json"
"""Name of the file with the report's question table."""
EVALUATE, AGAIN = METRICS / "evaluate.json", "run `dvc repro evaluate`"


def summary_here() -> dict[str, Any]:
    """Return metrics/evaluate.json, with metrics/contrasts.json as ``contrasts``.

    Raises:
        DamagedFile: it is missing or damaged.
    """
    summary = read_state(EVALUATE, AGAIN, arms=dict, paired=dict)
    if (contrasts := METRICS / "contrasts.json").exists():
        summary["contrasts"] = read_state(contrasts, AGAIN)
    return summary


def deciding_metric(params: Params) -> str:
    """Return the deciding metric of a promotion: tracking.metric, or the leading one of the table of arms."""
    from harr.evaluate.summary import headline

    return params.tracking.metric or headline(summary_here())


def show(width: int = 100, *, markdown: bool = False) -> str:
    """Return the arms table of the last evaluation, within ``width`` columns if possible, or as Markdown.

    Raises:
        DamagedFile: the evaluation is missing or damaged.
    """
    from harr.evaluate.tables import table

    summary = summary_here()
    try:
        corpus = f"\n\ncorpus {describe_corpus(summary['corpus'])}" if "corpus" in summary else ""
        return table(summary, width, markdown=markdown) + corpus
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, HarrError):
            raise
        raise DamagedFile(f"{EVALUATE} is damaged ({error!r}); {AGAIN}") from None
