"""All stages of a run, called one after another in this process, in the current folder."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from encyclopaedia import encyclopaedia

from harr.io.files import write_json
from harr.params import Params
from harr.types import Episode
from tasks.arms import train_arms
from tasks.audits import play_audits
from tasks.download import download_corpus
from tasks.embed import embed_passages
from tasks.evaluate import summarise_arms, write_evaluation
from tasks.evaluation_record import corpus_facts
from tasks.filter import filter_training_questions
from tasks.filter_outputs import plot_filter
from tasks.generator import make_generator
from tasks.index import decide_training, index_passages
from tasks.merge import merge_adapter
from tasks.paths import METRICS, QUESTIONS
from tasks.play import draw_test_questions, play_arms
from tasks.report import draw_report
from tasks.train import plot_training, train_policy, write_stats

ROOT = Path(__file__).parents[1]
SMOKE = yaml.safe_load((ROOT / "recipes/smoke.yaml").read_text())
WORLD = {"passages": 200, "train_questions": 24, "validation_questions": 6, "test_questions": 12, "hops": [1, 2]}
"""Settings of the encyclopaedia."""


def world_params(tiny: str, **sections: Any) -> Params:
    """Return the smoke recipe on a world of 200 passages with the tiny encoder."""
    own = {
        "download": encyclopaedia(**WORLD),
        "encoder": {"model": tiny, "max_tokens": 64},
        "embed": {"dtype": "float32"},
    }
    return Params.model_validate(SMOKE | own | sections)


def nothing(*values: object) -> None:
    """Log nowhere."""


@dataclass(frozen=True)
class Ran:
    """What the stages returned."""

    params: Params
    filtered: dict[str, float]
    history: list[dict[str, Any]]
    arms: dict[str, float]
    rows: dict[str, Any]
    episodes: dict[str, list[Episode]]
    summary: dict[str, Any]
    merged: dict[str, float]


def make_world(params: Params) -> None:
    """Write params.yaml and run stages download, embed and index."""
    write_json(Path("params.yaml"), params.model_dump(mode="json", exclude_unset=True))
    download_corpus(params)
    write_json(METRICS / "embed.json", embed_passages(params))
    write_json(METRICS / "index.json", index_passages(params) | decide_training(params))


def run_stages(params: Params, world: Path | None = None) -> Ran:
    """Run all stages up to merge; ``world``: a folder where the first three have run with the same parameters."""
    if world:
        write_json(Path("params.yaml"), params.model_dump(mode="json", exclude_unset=True))
        for name in ("data", "metrics"):
            shutil.copytree(world / name, name)
    else:
        make_world(params)
    make_generator(params, nothing)
    filtered = filter_training_questions(params, nothing)
    write_json(METRICS / "filter.json", filtered)
    plot_filter()
    history, figure = train_policy(params, nothing)
    write_stats(history)
    plot_training(history, figure)
    trained = train_arms(params, nothing)
    asked = draw_test_questions(params, QUESTIONS / "test.jsonl")
    rows, episodes = play_arms(params, asked, nothing, model=None)
    summary = summarise_arms(params, rows) | {"corpus": corpus_facts()}
    summary["audits"] = play_audits(params, rows, episodes, nothing)
    write_evaluation(params, rows, episodes, summary)
    with pytest.MonkeyPatch.context() as patched:  # MLflow caches stores by address: use none of another test's folder
        patched.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{Path('mlflow.db').absolute()}")
        draw_report(params)
    merged = merge_adapter(params)
    return Ran(params, filtered, history, trained, rows, episodes, summary, merged)
