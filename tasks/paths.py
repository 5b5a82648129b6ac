"""Every path of the project, relative to its folder; the library is handed these and writes none of its own."""

from pathlib import Path

from harr.builders.places import Places

CORPUS, QUESTIONS = Path("data/corpus"), Path("data/questions")
VECTORS, INDEX = Path("data/vectors"), Path("data/index")
MENTIONS, WORDS = Path("data/mentions"), Path("data/words")
FILTERED, EVALUATION = Path("data/filtered"), Path("data/evaluation")
GENERATOR, ADAPTER, ARMS = Path("models/generator"), Path("models/adapter"), Path("models/arms")
RETRIEVER, LLM, LENGTHS = Path("models/retriever"), Path("models/llm"), Path("models/lengths")
BRIDGED = Path("models/bridged")
"""What `harr bridge` writes."""
METRICS, PLOTS, REPORTS = Path("metrics"), Path("plots"), Path("reports")
VALIDATION = QUESTIONS / "validation.jsonl"
"""Questions that are played while a method trains, and never learnt from."""
STATS = METRICS / "training_stats.jsonl"
"""All that is known of every training step, a line a step."""
REPORT, PREFERENCES_PAGE = REPORTS / "index.html", REPORTS / "preferences.html"
DIAGNOSIS = Path("diagnosis")
"""What `harr diagnose` writes; not reports/, which DVC empties before stage evaluate."""
WORK = Path("work")
"""Unfinished work: a folder per stage, outside of what DVC deletes before a run."""
STATE = Path(".harr")
"""What commands tell each other: locks, processes, servers."""
NOTES, RUNS = WORK / "mlflow", STATE / "runs"
"""What MLflow has not received (tasks/tracking/report.py), and the folders of recipes, each with the same paths."""
CHECKS = Path("gx/uncommitted/data_docs/local_site/validations")
"""Pages of the expectations, a folder per suite."""
PLACES = Places(
    corpus=CORPUS,
    vectors=VECTORS,
    index=INDEX,
    mentions=MENTIONS,
    words=WORDS,
    generator=GENERATOR,
    completions=WORK / "completions",
    searches=WORK / "searches",
)
"""What the builders of the library read and remember."""
