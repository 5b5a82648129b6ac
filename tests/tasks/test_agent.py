"""The language model learns: all stages after one another, tiny, and what they leave behind."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from peft import PeftModel

from harr.corpus.passages import read_questions
from harr.errors import PromotionRefused
from harr.generator import small_lm
from harr.io.files import read_json, write_json
from harr.params import Params
from harr.rag.generation.local_model import LocalGenerator, load_model
from harr.types import Generate
from harr.world.scripted import plan
from tasks.arms import train_arms
from tasks.ask import ask
from tasks.download import download_corpus
from tasks.embed import embed_passages
from tasks.evaluate import play_arms, plot_and_report, summarise_arms, write_evaluation
from tasks.filter import filter_training_questions
from tasks.generator import make_generator
from tasks.index import index_passages
from tasks.merge import merge_adapter, register_model
from tasks.paths import QUESTIONS
from tasks.registry.promote import promote
from tasks.tracking.client import open_client
from tasks.tracking.run import tracked_run
from tasks.train import plot_training, train_policy, write_stats

CHANGES: dict[str, dict[str, Any]] = {
    "download": {
        "dataset": "world",
        "passages": 200,
        "train_questions": 8,
        "test_questions": 6,
        "hops": [1],
        "seed": 0,
    },
    "retriever": {"k": 1, "pool": 4, "search": "hybrid"},
    "pipeline": {"name": "search_r1", "max_searches": 1, "template": "bare"},
    "generator": {"kind": "small_lm", "steps": 2, "vocabulary": 600, "width": 32, "layers": 2, "max_tokens": 8},
    "reward": {"terms": {"answer_f1": 1.0, "letters:variety": 0.5}},  # noise differs in that, at least
    "filter": {"target": 8, "group_size": 4, "max_tokens": 8},
    "train": {
        "method": "agent",
        "steps": 1,
        "questions_per_step": 2,
        "group_size": 2,
        "episodes_per_pass": 4,
        "max_tokens": 8,
        "learning_rate": 1e-2,
        "lora": {"rank": 4, "alpha": 8},
    },
    "evaluate": {"arms": ["base", "warmstart", "full"], "seeds": 2, "resamples": 100},
}


GRAPHS: dict[str, Any] = {
    "download": CHANGES["download"] | {"test_questions": 4, "sources": True},
    "sources": {tool: {"kind": "milvus"} for tool in ("General", "News", "Academy")},
    "pipeline": {"name": "r_search", "template": "bare"},
    "generator": CHANGES["generator"] | {"plays": "r_search"},
    "reward": {
        "terms": {
            "semantic": [{"weight": 0.2, "end": 1}, {"weight": 0.5, "start": 1}],
            "graph": 0.25,
            "format": 0.25,
            "letters:variety": 0.5,
        }
    },
    "evaluate": CHANGES["evaluate"] | {"seeds": 1},
}


def nothing(step: int, values: object) -> None:
    """Log nowhere."""


def planned(self: object, requests: Sequence[Generate]) -> list[str]:
    """What the teacher of search graphs would write."""
    return [request.cut(plan(request.prompt)) for request in requests]


@pytest.fixture
def params(stored: Path, monkeypatch: pytest.MonkeyPatch) -> Params:
    """An agent of a few thousand weights in a world of two hundred passages."""
    for name, value in {"TOKENS_PER_STEP": 256, "TESTED": 1, "HEADS": 2}.items():
        monkeypatch.setattr(small_lm, name, value)
    monkeypatch.setenv("HARR_EXECUTION", "one")
    Path("params.yaml").write_text(yaml.safe_dump(yaml.safe_load(Path("params.yaml").read_text()) | CHANGES))
    return Params.load()


def test_an_agent_goes_through_all_stages(params: Params) -> None:
    for task in (download_corpus, embed_passages, index_passages):
        task.fn(params)
    make_generator.fn(params, nothing)
    filtered = filter_training_questions.fn(params, nothing)
    assert filtered["kept"] > 0 and filtered["kept"] + filtered.get("dropped_all_alike", 0) == filtered["tried"] == 8
    write_json(Path("metrics/filter.json"), filtered)
    history = train_policy.fn(params, nothing)
    write_stats(history)
    plot_training.fn(history)
    assert train_arms.fn(params, nothing)["runs"] == 1.0
    rows, episodes = play_arms.fn(params, read_questions(QUESTIONS / "test.jsonl"), nothing, model=None)
    assert {arm: len(by_seed) for arm, by_seed in rows.items()} == {"base": 1, "warmstart": 1, "full": 2}
    summary = summarise_arms.fn(params, rows)
    write_evaluation.fn(params, rows, episodes, summary)
    plot_and_report.fn(params, summary, rows, episodes, {}, {})
    found = read_json(Path("metrics/evaluate.json"))
    for metrics in found["arms"].values():
        assert {"reward", "answer_f1", "letters:variety", "searches", "malformed", "recall"} <= set(metrics)
        assert metrics["reward"]["mean"] == pytest.approx(
            metrics["answer_f1"]["mean"] + 0.5 * metrics["letters:variety"]["mean"], abs=1e-5
        )
        assert metrics["reward"]["n"] == 6 and metrics["reward"]["low"] <= metrics["reward"]["mean"]
    assert set(found["paired"]) == {"base", "full"} and len(found["arms"]["full"]["reward"]["seeds"]) == 2
    assert set(read_json(Path("metrics/contrasts.json"))) == {"full-base", "full-warmstart"}
    assert "its warm start" in Path("reports/index.html").read_text()

    figures = merge_adapter.fn(params)
    assert figures["logit_difference_max"] < 1e-3
    assert read_json(Path("models/retriever/untrained.json"))["encoder"]["model"] == params.encoder.model
    trained, merged = load_model("models/adapter")[0], load_model("models/llm")[0]
    assert isinstance(trained, PeftModel) and not isinstance(merged, PeftModel)
    begun, base = (load_model(f"models/generator{part}")[0] for part in ("", "/base"))
    ids = torch.arange(1, 20)[None]
    logits = [model(ids).logits for model in (base, begun, merged)]
    assert not torch.equal(logits[0], logits[1]) and not torch.equal(logits[1], logits[2])

    asked = read_questions(QUESTIONS / "test.jsonl")[0]
    for model in (None, Path("models/adapter")):  # the same model, merged and not, plays as in evaluation
        episode = ask(params, asked.text, model)
        assert [turn.completion for turn in episode.turns] == [turn.completion for turn in episodes["full"][0].turns]

    with tracked_run("merge", params) as run:
        version = open_client(params).get_model_version(
            params.tracking.registered_model, register_model.fn(run, params)
        )
    assert version.tags["kind"] == "llm" and version.source.endswith("/llm")
    with pytest.raises(PromotionRefused, match=r"against its own arm warmstart .*: gain: found answer_f1"):
        promote.fn(params)


def test_an_agent_that_plans_graphs_goes_through_all_stages(params: Params, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("params.yaml").write_text(yaml.safe_dump(yaml.safe_load(Path("params.yaml").read_text()) | GRAPHS))
    params = Params.load()
    download_corpus.fn(params)
    embed_passages.fn(params)
    indexed = index_passages.fn(params)
    assert indexed["indexed"] == sum(indexed[f"indexed_{tool}"] for tool in GRAPHS["sources"]) == 200
    make_generator.fn(params, nothing)
    write_json(Path("metrics/filter.json"), filter_training_questions.fn(params, nothing))
    history = train_policy.fn(params, nothing)
    write_stats(history)
    plot_training.fn(history)
    assert train_arms.fn(params, nothing)["runs"] == 0.0
    # By its own text it plans nothing yet, which is a result like any other.
    asked = read_questions(QUESTIONS / "train.jsonl")[:3]
    own, played = play_arms.fn(params, asked, nothing, model=None)
    assert set(own) == {"base", "warmstart", "full"}
    for arm, (scores, *_) in own.items():
        turns = [turn.completion for episode in played[arm] for turn in episode.turns]
        assert len(scores) == 3 and len(turns) == 3 and any(turns)
        assert all(row["malformed"] >= 1.0 and row["graph"] == 0.0 for row in scores)
    # So that every collection is searched, the teacher writes for the arms now.
    monkeypatch.setattr(LocalGenerator, "complete", planned)
    rows, episodes = play_arms.fn(params, read_questions(QUESTIONS / "test.jsonl"), nothing, model=None)
    summary = summarise_arms.fn(params, rows)
    write_evaluation.fn(params, rows, episodes, summary)
    plot_and_report.fn(params, summary, rows, episodes, {"Seed": "0"}, {})
    found = read_json(Path("metrics/evaluate.json"))
    assert set(found["arms"]) == {"base", "warmstart", "full"}
    for metrics in found["arms"].values():
        mean = {name: figures["mean"] for name, figures in metrics.items()}
        assert "semantic" not in mean and (mean["graph"], mean["format"], mean["searches"]) == (1.0, 1.0, 1.0)
        total = 0.5 * (mean["semantic_f1"] + mean["letters:variety"]) + 0.25 * (mean["graph"] + mean["format"])
        assert mean["reward"] == pytest.approx(total, abs=1e-5) and mean["semantic_f1"] > 0
        assert mean["context_words"] > 0
    assert "semantic (answer F1, no judge)" in Path("reports/index.html").read_text()
    assert merge_adapter.fn(params)["logit_difference_max"] < 1e-3
