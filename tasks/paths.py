"""Every path of the project, relative to its folder, as passed to the library. Paths that applications also read are in
harr/builders/places.py."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from harr.builders.places import Places

if TYPE_CHECKING:
    from harr.params import Params

PLACES = Places.of_project(Path())
"""What the builders of the library read and remember."""
SETTINGS, LOCK = Path("params.yaml"), Path("dvc.lock")
INPUTS = Path("data/inputs")
"""What stages depend on besides data, one file each (tasks/inputs)."""
CORPUS, QUESTIONS = PLACES.corpus, Path("data/questions")
VECTORS, INDEX = PLACES.vectors, PLACES.index
TRAINED_ON = Path("data/trained_on")
"""Record of the corpus, on which stages filter, train and arms depend (harr/corpus/changes.py)."""
SINCE = "since_training"
"""Prefix of the figures in metrics/index.json on what changed since it was written."""
FILTERED, EVALUATION = Path("data/filtered"), Path("data/evaluation")
GENERATOR, ADAPTER, ARMS = PLACES.generator, Path("models/adapter"), Path("models/arms")
RETRIEVER, LANGUAGE_MODEL = Path("models/retriever"), Path("models/language_model")
AUDITS = "audits.json"
"""Name of an evaluation's file with the audits of ``trained`` (tasks/audits.py)."""
METRICS, PLOTS, REPORTS = Path("metrics"), Path("plots"), Path("reports")
HEADLINE = METRICS / "headline.json"
"""The few figures of an evaluation that DVC and MLflow show (tasks/headline.py)."""
VALIDATION = QUESTIONS / "validation.jsonl"
"""Questions played during training and never learnt from."""
STATS = METRICS / "training_stats.jsonl"
"""Figures of every training step, one line each."""
REPORT = REPORTS / "index.html"
WORK = Path("work")
"""Unfinished work: a folder per stage, outside what DVC deletes before a run."""
STATE = Path(".harr")
"""What commands share: locks, processes, servers."""
NOTES, RUNS = WORK / "mlflow", STATE / "runs"
"""Reports that MLflow has not received (tasks/tracking/report.py), and recipes' folders, each with the same paths."""
CHECKS = Path("gx/uncommitted/data_docs/local_site/validations")
"""Pages of the expectations, one folder per suite."""


def trained_folder(params: "Params") -> tuple[Literal["retriever", "language_model"], Path]:
    """Return the kind of model that was trained, and where stage merge wrote it."""
    return ("language_model", LANGUAGE_MODEL) if params.language_model_learns else ("retriever", RETRIEVER)
