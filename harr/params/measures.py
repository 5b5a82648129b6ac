"""Names of ranking measures: those of trec_eval and ir-measures, and those in the rows of an evaluation."""

from typing import Annotated, TypeVar

from pydantic import AfterValidator

Given = TypeVar("Given")
MEASURES = {
    "recall_at_2": "R@2",
    "recall_at_5": "R@5",
    "recall_at_10": "R@10",
    "success_at_5": "Success@5",
    "ndcg_at_10": "nDCG@10",
    "reciprocal_rank": "RR",
}
"""The names in other tools, by the names of our metrics; the mean of RR over questions is the MRR."""


def metric_of(name: str) -> str:
    """Return our name of a metric, given that name or the one in ir-measures.

    Raises:
        ValueError: the name looks like a measure of ir-measures, but none that is computed.

    >>> metric_of("nDCG@10"), metric_of("recall"), metric_of("RR")
    ('ndcg_at_10', 'recall', 'reciprocal_rank')
    """
    names = {measure.lower(): metric for metric, measure in MEASURES.items()}
    if "@" in name and name.lower() not in names:
        raise ValueError(f"{name} is not measured; known: {', '.join(MEASURES.values())}")
    return names.get(name.lower(), name)


def of_metrics(values: dict[str, Given]) -> dict[str, Given]:
    """Return the values by our metric names.

    Raises:
        ValueError: a measure is not computed, or is given twice.

    >>> of_metrics({"R@5": -0.01})
    {'recall_at_5': -0.01}
    """
    by_metric = {metric_of(name): value for name, value in values.items()}
    if len(by_metric) < len(values):
        raise ValueError(f"a measure is there twice among {', '.join(values)}; leave one out")
    return by_metric


Metric = Annotated[str, AfterValidator(metric_of)]
"""A metric by its name or that of ir-measures; "" names none."""
