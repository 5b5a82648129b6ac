"""The language model learns: all stages one after another, in miniature, and what they leave."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from encyclopaedia import encyclopaedia
from harr_encyclopaedia import small_lm
from harr_encyclopaedia.scripted import plan
from harr_local.ask import ask
from letters import save_letters
from peft import PeftModel
from pretended_gpu import pretended_gpu
from stages import SMOKE, WORLD, Ran, nothing, run_stages, world_params
from transformers import AutoTokenizer
from trl import chat_template_utils

from harr.corpus.passages import read_questions
from harr.errors import PromotionRefused
from harr.io.files import read_json
from harr.rag.generation.chat_template import keeps_turns
from harr.rag.generation.local_model import LocalGenerator, load_model
from harr.types import Generate
from tasks.evaluate import summarise_arms, write_evaluation
from tasks.merge import register_model
from tasks.paths import PLACES, QUESTIONS
from tasks.play import play_arms
from tasks.registry.promote import promote
from tasks.report import draw_report
from tasks.tracking.client import open_client
from tasks.tracking.run import tracked_run

SECTIONS: dict[str, Any] = {
    "retriever": {"k": 1, "pool": 4, "search": "hybrid"},
    "generator": {
        "kind": "trained",
        "function": "harr_encyclopaedia.small_lm:train_small_lm",
        "settings": {"steps": 2, "vocabulary": 600, "width": 32, "layers": 2},
        "max_tokens": 8,
    },
    "filter": {"target": 8, "batch_size": 8, "group_size": 4},
    "train": {
        "method": "agent",
        "steps": 1,
        "questions_per_step": 2,
        "group_size": 2,
        "episodes_per_pass": 4,
        "max_tokens": 8,
        "optimizer": {"learning_rate": 1e-2},
        "lora": {"rank": 4, "alpha": 8},
    },
}
EVALUATE = {"seeds": 1, "resamples": 100, "max_questions": 6}
ARMS = ("base", "warmstart", "trained")


@pytest.fixture(autouse=True)
def small(stored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model of a few thousand weights, in an empty folder with a store."""
    for name, value in {"TOKENS_PER_STEP": 256, "TESTED": 1, "HEADS": 2}.items():
        monkeypatch.setattr(small_lm, name, value)
    monkeypatch.setenv("HARR_EXECUTION", "one")


def logits_of(*folders: str) -> list[torch.Tensor]:
    """Return the next-token logits of the models in these folders."""
    ids = torch.arange(2, 60)[None]
    return [load_model(folder)[0](ids).logits for folder in folders]


def check_merged(before: str) -> None:
    """Check that models/language_model is a plain model that plays like the adapter, and unlike ``before``."""
    assert isinstance(load_model("models/adapter")[0], PeftModel)
    assert not isinstance(load_model("models/language_model")[0], PeftModel)
    begun, trained, merged = logits_of(before, "models/adapter", "models/language_model")
    assert torch.allclose(trained, merged, atol=1e-3) and not torch.allclose(begun, trained, atol=1e-3)


def test_an_agent_goes_through_all_stages(world: Path, tiny: str) -> None:
    params = world_params(
        tiny,
        **SECTIONS,
        pipeline={"name": "search_r1", "max_searches": 1, "template": "bare"},
        reward={"terms": {"answer_f1": 1.0, "letters:variety": 0.5}},  # at least in that, noise differs
        evaluate=EVALUATE | {"arms": [*ARMS], "seeds": 2},
    )
    ran = run_stages(params, world)
    assert 0 < ran.filtered["kept"] == ran.filtered["tried"] - ran.filtered.get("dropped_all_alike", 0)
    assert ran.arms["runs"] == 1.0
    assert {arm: len(by_seed) for arm, by_seed in ran.rows.items()} == {"base": 1, "warmstart": 1, "trained": 2}
    found = read_json(Path("metrics/evaluate.json"))
    for metrics in found["arms"].values():
        assert {"reward", "answer_f1", "letters:variety", "searches", "malformed", "recall"} <= set(metrics)
        total = metrics["answer_f1"]["mean"] + 0.5 * metrics["letters:variety"]["mean"]
        assert metrics["reward"]["mean"] == pytest.approx(total, abs=1e-5) and metrics["reward"]["n"] == 6
    assert set(found["paired"]) == {"base", "trained"} and len(found["arms"]["trained"]["reward"]["seeds"]) == 2
    assert set(read_json(Path("metrics/contrasts.json"))) == {"trained-base", "trained-warmstart"}
    assert "points over <b>warmstart</b>" in Path("reports/index.html").read_text()
    assert ran.merged["logit_difference_max"] < 1e-3
    assert read_json(Path("models/retriever/untrained.json"))["encoder"]["model"] == tiny
    check_merged("models/generator")
    base, begun = logits_of("models/generator/base", "models/generator")
    assert not torch.allclose(base, begun, atol=1e-3)
    wanted = ran.episodes["trained"][0]
    for model in (None, Path("models/adapter")):  # the same model, merged or not, plays as in evaluation
        episode = ask(params, wanted.question.text, model)
        assert [turn.completion for turn in episode.turns] == [turn.completion for turn in wanted.turns]
    with tracked_run("merge", params) as run:
        number = register_model(run, params)
    version = open_client(params).get_model_version(params.tracking.registered_model, number)
    assert version.tags["kind"] == "language_model" and version.source.endswith("/language_model")
    with pytest.raises(PromotionRefused, match=r"against its own arm warmstart .*: gain: found answer F1"):
        promote(params)


@pytest.mark.filterwarnings("ignore:'pin_memory' argument is set")  # there is no driver to pin it
def test_an_agent_goes_through_all_stages_on_a_gpu(
    world: Path, tiny: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(place: str) -> Ran:
        (tmp_path / place).mkdir()
        monkeypatch.chdir(tmp_path / place)
        return run_stages(params, world)

    params = world_params(
        tiny,
        **SECTIONS,
        pipeline={"name": "search_r1", "max_searches": 1, "template": "bare"},
        reward={"terms": {"answer_f1": 1.0, "letters:variety": 0.5}},
        evaluate=EVALUATE | {"arms": [*ARMS]},
    )
    on_cpu = run("cpu")
    with pretended_gpu():
        on_gpu = run("gpu")
    assert on_gpu.summary["arms"] == on_cpu.summary["arms"]
    assert on_gpu.merged["logit_difference_max"] < 1e-3


def test_an_agent_that_plans_graphs_searches_every_collection(tiny: str, monkeypatch: pytest.MonkeyPatch) -> None:
    semantic = [{"weight": 0.2, "end": 1}, {"weight": 0.5, "start": 1}]
    terms = {"semantic": semantic, "graph": 0.25, "format": 0.25, "letters:variety": 0.5}
    tools = ("General", "News", "Academy")
    settings = SECTIONS["generator"]["settings"] | {"plays": "r_search"}
    params = world_params(
        tiny,
        **SECTIONS | {"generator": SECTIONS["generator"] | {"settings": settings}},
        download=encyclopaedia(**WORLD | {"train_questions": 8, "test_questions": 4, "hops": [1], "sources": True}),
        sources={tool: {"kind": "milvus"} for tool in tools},
        pipeline={"name": "r_search", "template": "bare"},
        reward={"terms": terms},
        evaluate=EVALUATE | {"arms": [*ARMS]},
    )
    ran = run_stages(params)
    indexed = read_json(Path("metrics/index.json"))
    assert indexed["indexed"] == sum(indexed[f"indexed_{tool}"] for tool in tools) == 200
    assert set(ran.rows) == set(ARMS) and ran.merged["logit_difference_max"] < 1e-3
    for arm, (scores, *_) in ran.rows.items():  # from its own text it cannot plan yet, which is a valid result
        turns = [turn.completion for episode in ran.episodes[arm] for turn in episode.turns]
        assert len(scores) == 4 and len(turns) == 4 and any(turns)
        assert all(row["malformed"] >= 1.0 and row["graph"] == 0.0 for row in scores)

    def planned(self: object, requests: Sequence[Generate]) -> list[str]:
        return [request.cut(plan(request.prompt)) for request in requests]

    # The teacher now writes for the arms, so that every collection is searched.
    shutil.rmtree(PLACES.completions)
    monkeypatch.setattr(LocalGenerator, "complete", planned)
    rows, episodes = play_arms(params, read_questions(QUESTIONS / "test.jsonl"), nothing, model=None)
    summary = summarise_arms(params, rows)
    write_evaluation(params, rows, episodes, summary)
    draw_report(params)
    for metrics in read_json(Path("metrics/evaluate.json"))["arms"].values():
        mean = {name: figures["mean"] for name, figures in metrics.items()}
        assert "semantic" not in mean and (mean["graph"], mean["format"], mean["searches"]) == (1.0, 1.0, 1.0)
        total = 0.5 * (mean["semantic_f1"] + mean["letters:variety"]) + 0.25 * (mean["graph"] + mean["format"])
        assert mean["reward"] == pytest.approx(total, abs=1e-5) and mean["semantic_f1"] > 0
        assert mean["context_words"] > 0
    assert "semantic (answer F1, no judge)" in Path("reports/index.html").read_text()


def test_an_agent_whose_calls_are_all_malformed_goes_through_all_stages(world: Path, tiny: str) -> None:
    """A chat model of printable characters, with a template that drops thoughts."""
    save_letters(Path("chat"), spread=0.5, room=8192, printable=True)
    tokenizer = AutoTokenizer.from_pretrained("chat")
    tokenizer.chat_template = chat_template_utils.qwen3_chat_template
    tokenizer.save_pretrained("chat")
    params = world_params(
        tiny,
        retriever=SECTIONS["retriever"],
        train=SECTIONS["train"],
        filter={"keep": "all", "target": 8},
        pipeline={"name": "react", "shows": "passages", "max_searches": 1},
        generator={"kind": "local", "model": "chat", "max_tokens": 8},
        reward={"terms": {"answer_similarity": 1.0, "mrr": 1.0, "format": 1.0, "letters:variety": 0.5}},
        evaluate=EVALUATE | {"arms": ["base", "trained"]},
        tracking=SMOKE["tracking"],
    )
    ran = run_stages(params, world)
    (row,) = ran.history
    assert row["malformed"] == 8.0, "two questions, two rollouts, two turns"
    assert row["tool_errors"] == row["searches_mean"] == 0.0
    assert row["own_tokens"] <= 16 < row["told_tokens"] and row["reward_std"] > 0
    found = read_json(Path("metrics/evaluate.json"))["arms"]
    assert set(found) == {"base", "trained"}
    for metrics in found.values():
        assert metrics["malformed"]["mean"] == 2.0 and metrics["format"]["mean"] == 0.0
    assert 0.0 < ran.merged["logit_difference_max"] < 1e-3
    check_merged("chat")
    for folder in ("models/adapter", "models/language_model"):
        assert keeps_turns(AutoTokenizer.from_pretrained(folder)), "a server plays it with the template of its training"
