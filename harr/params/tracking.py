"""Sections ``merge`` and ``tracking`` of params.yaml."""

from pydantic import Field

from harr.params.fields import ExperimentName, Fraction, Positive, RegistryName, Section


class MergeParams(Section):
    """Fold the adapter into the encoder."""

    min_cosine: Fraction = 0.9999


class TrackingParams(Section):
    """MLflow."""

    uri: str = ""
    """Empty: sqlite:///mlflow.db with artifacts in mlruns/; else a tracking server."""
    experiment: ExperimentName = "harr"
    registered_model: RegistryName = "harr-retriever"
    min_questions: Positive = 100
    """A promotion needs a comparison on so many questions."""
    traces: int = Field(50, ge=0)
    """So many questions of `full` and of its baseline are kept as MLflow traces, a span a hop."""
