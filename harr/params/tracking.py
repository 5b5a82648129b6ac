"""Sections ``merge`` and ``tracking`` of params.yaml."""

from typing import Literal

from pydantic import Field

from harr.params.fields import (
    Dotted,
    ExperimentName,
    Fraction,
    Plain,
    Positive,
    RegistryName,
    Section,
    StoreAddress,
)
from harr.params.measures import Metric


class MergeParams(Section):
    """Folding of the adapter into the weights of the trained model."""

    min_cosine: Fraction = 0.9999
    """Minimum cosine of the vectors before and after the merge; the stage fails below it."""
    towers: Literal["both", "query"] = "both"
    """Towers of models/retriever: queries and documents as one model, whose ``encode_query`` and ``encode_document``
    choose the right tower, or that of queries alone, half the size."""


class TrackingParams(Section):
    """Where runs are recorded, and what a promotion requires."""

    uri: StoreAddress = ""
    """Address of an MLflow tracking server; if empty, runs go to sqlite:///mlflow.db and artifacts to mlruns/."""
    experiment: ExperimentName = "harr"
    """Name of the MLflow experiment to which runs belong."""
    registered_model: RegistryName = "harr-retriever"
    """Name of the model in MLflow's registry."""
    metric: Metric = ""
    """Metric that decides a promotion; a measure may have its ir-measures name (``nDCG@10``). If empty, the one that
    leads the table of arms."""
    baseline: str = ""
    """Arm of evaluate.arms that a champion may not be behind; if empty, the best untrained one."""
    min_questions: Positive = 100
    """Minimum number of questions in the comparison on which a promotion is based."""
    conditions: dict[Dotted, Plain] = Field({})
    """Functions of other packages that a promotion also asks, each with its settings (docs/extend.md)."""
