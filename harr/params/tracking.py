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
    """Folding of the adapter into the weights of the model that was trained."""

    min_cosine: Fraction = 0.9999
    """Minimum cosine of the vectors before and after the merge; the stage fails below it."""
    towers: Literal["both", "query"] = "both"
    """Towers of models/retriever: queries and documents as one model, whose ``encode_query`` and ``encode_document``
    are right by themselves, or that of queries alone, half the size."""


class TrackingParams(Section):
    """Where runs are recorded, and what a promotion takes."""

    uri: StoreAddress = ""
    """Address of an MLflow tracking server; if empty, runs go to sqlite:///mlflow.db and artifacts to mlruns/."""
    experiment: ExperimentName = "harr"
    """Name of the MLflow experiment that runs belong to."""
    registered_model: RegistryName = "harr-retriever"
    """Name of the model in MLflow's registry."""
    metric: Metric = ""
    """Metric that decides a promotion, a measure maybe as ir-measures names it (``nDCG@10``); if empty, the one that leads
    the table of arms."""
    baseline: str = ""
    """Arm of evaluate.arms that a champion may not be behind; if empty, the best that needs no training."""
    min_questions: Positive = 100
    """Minimum number of questions in the comparison that a promotion goes by."""
    conditions: dict[Dotted, Plain] = Field({})
    """Functions of other packages that a promotion asks, too, each with its settings (docs/extend.md)."""
