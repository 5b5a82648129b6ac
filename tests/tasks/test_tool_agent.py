"""A tool-calling agent learns by a LoRA: all stages after one another with a chat model that can only write noise."""

from pathlib import Path

import pytest
import torch
import yaml
from letters import save_letters
from peft import PeftModel
from transformers import AutoTokenizer
from trl import chat_template_utils

from harr.corpus.passages import read_questions
from harr.io.files import read_json, write_json
from harr.params import Params
from harr.rag.generation.chat_template import keeps_turns
from harr.rag.generation.local_model import load_model
from tasks.download import download_corpus
from tasks.embed import embed_passages
from tasks.evaluate import play_arms, summarise_arms, write_evaluation
from tasks.filter import filter_training_questions
from tasks.index import index_passages
from tasks.merge import merge_adapter
from tasks.paths import QUESTIONS
from tasks.train import train_policy

WORLD = {"dataset": "world", "passages": 200, "train_questions": 8, "test_questions": 6, "hops": [1], "seed": 0}
TRAIN = {
    "method": "agent",
    "steps": 1,
    "questions_per_step": 2,
    "group_size": 2,
    "episodes_per_pass": 4,
    "max_tokens": 8,
}
TERMS = {"answer_similarity": 1.0, "mrr": 1.0, "format": 1.0, "letters:variety": 0.5}


def nothing(step: int, values: object) -> None:
    """Log nowhere."""


@pytest.fixture
def params(stored: Path, monkeypatch: pytest.MonkeyPatch) -> Params:
    """A chat model of printable characters, with a template that drops thoughts, in a world of two hundred passages."""
    monkeypatch.setenv("HARR_EXECUTION", "one")
    folder = save_letters(stored / "chat", spread=0.5, room=8192, printable=True)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = chat_template_utils.qwen3_chat_template
    tokenizer.save_pretrained(folder)
    changes = {
        "download": WORLD,
        "retriever": {"k": 1, "pool": 4, "search": "hybrid"},
        "filter": {"keep": "all", "target": 8},
        "train": TRAIN | {"learning_rate": 1e-2, "lora": {"rank": 4, "alpha": 8}},
        "pipeline": {"name": "react", "shows": "passages", "max_searches": 1},
        "generator": {"kind": "local", "model": str(folder), "max_tokens": 8},
        "reward": {"terms": TERMS},
        "evaluate": {"arms": ["base", "full"], "seeds": 1, "resamples": 100},
    }
    Path("params.yaml").write_text(yaml.safe_dump(yaml.safe_load(Path("params.yaml").read_text()) | changes))
    return Params.load()


def test_an_agent_whose_calls_are_all_malformed_goes_through_all_stages(params: Params) -> None:
    for task in (download_corpus, embed_passages, index_passages):
        task.fn(params)
    write_json(Path("metrics/filter.json"), filter_training_questions.fn(params, nothing))
    (row,) = train_policy.fn(params, nothing)
    assert row["malformed"] == 8.0, "two questions, two rollouts, two turns"
    assert row["tool_errors"] == row["searches_mean"] == 0.0
    assert row["own_tokens"] <= 16 < row["told_tokens"] and row["reward_std"] > 0

    rows, episodes = play_arms.fn(params, read_questions(QUESTIONS / "test.jsonl"), nothing, model=None)
    summary = summarise_arms.fn(params, rows)
    write_evaluation.fn(params, rows, episodes, summary)
    found = read_json(Path("metrics/evaluate.json"))["arms"]
    assert set(found) == {"base", "full"}
    for metrics in found.values():
        assert metrics["malformed"]["mean"] == 2.0 and metrics["format"]["mean"] == 0.0

    figures = merge_adapter.fn(params)
    assert 0.0 < figures["logit_difference_max"] < 1e-3
    trained, merged = load_model("models/adapter")[0], load_model("models/llm")[0]
    assert isinstance(trained, PeftModel) and not isinstance(merged, PeftModel)
    ids = torch.arange(2, 60)[None]
    before, after, folded = (model(ids).logits for model in (load_model(params.generator.model)[0], trained, merged))  # type: ignore[union-attr]
    assert torch.allclose(after, folded, atol=1e-3) and not torch.allclose(before, after, atol=1e-3)
    for folder in ("models/adapter", "models/llm"):
        assert keeps_turns(AutoTokenizer.from_pretrained(folder)), "a server plays it with the template of its training"
