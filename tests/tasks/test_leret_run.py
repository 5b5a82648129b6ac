"""LeReT through all its stages with a real index: a tiny world, a model that can only write noise, and a kill."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from letters import save_letters
from peft import PeftModel

from harr.corpus.passages import read_questions
from harr.errors import IndexMismatch
from harr.io.files import read_json, read_jsonl, write_json
from harr.params import Params
from harr.rag.generation.local_model import load_model
from harr.types import Log
from tasks.arms import train_arms
from tasks.download import download_corpus
from tasks.embed import embed_passages
from tasks.evaluate import evaluation_frame, play_arms, plot_and_report, summarise_arms, write_evaluation
from tasks.expectations.process import expect
from tasks.filter import filter_training_questions, preferences_frame, write_preferences_page
from tasks.index import index_passages
from tasks.merge import merge_adapter
from tasks.paths import ADAPTER, FILTERED, QUESTIONS, WORK
from tasks.train import plot_training, summary, train_policy, write_stats

CHANGES: dict[str, Any] = {
    "download": {
        "dataset": "world",
        "passages": 200,
        "train_questions": 60,
        "validation_questions": 6,
        "test_questions": 12,
        "hops": [2],
        "seed": 2,
    },
    "retriever": {"k": 40, "pool": 60, "search": "hybrid"},  # of 200 passages: noise finds some gold on every CPU
    "pipeline": {"name": "leret", "template": "bare", "max_tokens": 600},
    "generator": {"kind": "local", "model": "letters"},
    "reward": {"terms": {"recall": 1.0}},
    "filter": {
        "target": 8,
        "batch_size": 4,
        "max_tokens": 6,
        "preferences": {
            "pool": 30,
            "validation": 4,
            "candidates": 3,
            "prompts": 2,
            "demonstrations": 1,
            "temperature": 1.0,
            "held_out": 0.2,
        },
    },
    "train": {
        "method": "leret",
        "validate_every": 2,
        "keep": "best",
        "sft_batch": 4,
        "sft_learning_rate": 1e-3,
        "ipo_learning_rate": 1e-3,
        "warmup_steps": 1,
        "max_tokens": 6,
        "lora": {"rank": 4, "alpha": 8},
    },
    "evaluate": {
        "arms": ["base", "few_shot", "sft", "full"],
        "seeds": 1,
        "reader": {"kind": "scripted"},
        "resamples": 100,
    },
}
FILES = ("preferences.jsonl", "prompts.json", "questions.jsonl", "statistics.jsonl", "manifest.json")


def nothing(step: int, values: object) -> None:
    """Log nowhere."""


def loaded(**retriever: str) -> Params:
    """The parameters of the test, with changes of the section retriever."""
    recipe = yaml.safe_load(Path("recipes/smoke.yaml").read_text()) | CHANGES
    recipe["retriever"] = recipe["retriever"] | retriever
    Path("params.yaml").write_text(yaml.safe_dump(recipe))
    return Params.load()


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model, a corpus, its vectors and its index."""
    folder = tmp_path_factory.mktemp("leret")
    save_letters(folder / "letters", spread=0.3, room=4096, printable=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        (folder / "recipes").symlink_to(Path(__file__).parents[2] / "recipes")
        params = loaded()
        for task in (download_corpus, embed_passages, index_passages):
            task.fn(params)
    return folder


@pytest.fixture
def place(built: Path, stored: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, which is the current folder."""
    monkeypatch.setenv("HARR_EXECUTION", "one")
    for name in ("letters", "data"):
        shutil.copytree(built / name, stored / name)
    return stored


def test_leret_goes_through_all_stages(place: Path) -> None:
    params = loaded()
    sampled = filter_training_questions.fn(params, nothing)
    assert sampled["tried"] == 8 and 0 < sampled["kept"] <= 8 and sampled["pairs"] > 0 and sampled["prompts"] == 3
    assert expect.fn("preferences", preferences_frame.fn())["expected_preferences"] > 0
    write_json(Path("metrics/filter.json"), sampled)
    history = train_policy.fn(params, nothing)
    write_stats(history)
    plot_training.fn(history)
    told = summary(history, "accuracy")
    assert told["validation_first_ndcg_at_10"] >= 0.0 and told["validation_seconds"] > 0.0
    assert read_json(ADAPTER / "harr.json")["kept_questions"] == 6
    assert {row["phase"] for row in history} == {0.0, 1.0} and summary(history, "accuracy")[
        "target_margin_nats"
    ] == 10.0
    assert train_arms.fn(params, nothing)["runs"] == 0.0

    rows, episodes = play_arms.fn(params, read_questions(QUESTIONS / "test.jsonl"), nothing, model=None)
    assert {arm: len(by_seed) for arm, by_seed in rows.items()} == dict.fromkeys(params.evaluate.arms, 1)
    figures = summarise_arms.fn(params, rows) | expect.fn("evaluation", evaluation_frame.fn(rows))
    write_evaluation.fn(params, rows, episodes, figures)
    page = write_preferences_page.fn()
    plot_and_report.fn(params, figures, rows, episodes, {"Seed": "0"}, {"Preferences between queries": page.name})
    found = read_json(Path("metrics/evaluate.json"))["arms"]
    assert set(found) == {"base", "few_shot", "sft", "full"}
    for arm, metrics in found.items():
        mean = {name: metric["mean"] for name, metric in metrics.items()}
        wanted = {"recall", "recall_after_1", "recall_after_2", "ap_after_1", "ap_after_2", "answer_em", "answer_f1"}
        assert wanted <= set(mean) and metrics["recall"]["n"] == 12
        assert mean["recall"] == pytest.approx(mean["recall_after_2"])
        assert mean["recall_after_1"] <= mean["recall_after_2"]
        queries = {hop.query for episode in episodes[arm] for hop in episode.outcome.hops}
        assert len(queries) > 1 and all(len(query) <= 6 for query in queries)
    assert max(metrics["recall"]["mean"] for metrics in found.values()) > 0
    assert 'href="preferences.html"' in Path("reports/index.html").read_text()
    assert (
        f"{sum(len(row['pairs']) for row in read_jsonl(FILTERED / 'preferences.jsonl'))} pairs of" in page.read_text()
    )

    assert merge_adapter.fn(params)["logit_difference_max"] < 1e-3
    trained, merged, sft = (load_model(f"models/{name}")[0] for name in ("adapter", "llm", "adapter/sft"))
    assert isinstance(trained, PeftModel) and not isinstance(merged, PeftModel)
    ids = torch.arange(2, 60)[None]
    logits = [model(ids).logits for model in (load_model("letters")[0], sft, merged)]
    assert not torch.equal(logits[0], logits[1]) and not torch.equal(logits[1], logits[2])


def killed_at(last: int) -> Log:
    """A log that kills the stage at a step."""

    def kill(step: int, values: object) -> None:
        if step == last:
            raise KeyboardInterrupt

    return kill


@pytest.mark.parametrize("late", [False, True], ids=["hybrid", "late"])
def test_a_killed_sampling_ends_with_the_same_bytes(place: Path, multi_vector: Path, late: bool) -> None:
    params = loaded(late_interaction=str(shutil.copytree(multi_vector, place / "colbert"))) if late else loaded()
    filter_training_questions.fn(params, nothing)
    whole = {name: (FILTERED / name).read_bytes() for name in FILES}
    index = read_json(Path("data/vectors/manifest.json"))["identity"]
    assert (read_json(FILTERED / "manifest.json")["index"] == index) != late
    shutil.rmtree(FILTERED)
    shutil.rmtree(WORK / "filter")
    with pytest.raises(KeyboardInterrupt):
        filter_training_questions.fn(params, killed_at(2))
    assert not FILTERED.exists() and len(list((WORK / "filter").glob("*/hop-*.json"))) == 3
    filter_training_questions.fn(params, nothing)
    assert {name: (FILTERED / name).read_bytes() for name in FILES} == whole
    if late:  # retrained behind the same name: its work begins anew, and evaluation wants it
        weights = place / "colbert/1_Dense/model.safetensors"
        weights.write_bytes(weights.read_bytes()[:-1] + b"?")
        with pytest.raises(KeyboardInterrupt):
            filter_training_questions.fn(params, killed_at(0))
        assert len([path for path in (WORK / "filter").iterdir() if path.is_dir()]) == 2
        with pytest.raises(IndexMismatch, match="was sampled with index"):
            play_arms.fn(params, [], nothing, model=None)
