"""LeReT through all its stages with a real index: a tiny world, and a model that can write only noise."""

from pathlib import Path
from typing import Any

import pytest
import torch
from encyclopaedia import PLAYER, encyclopaedia
from letters import save_letters
from stages import SMOKE, WORLD, run_stages, world_params

from harr.builders.retrievers import search_identity
from harr.io.files import read_json
from harr.rag.generation.local_model import load_model
from tasks.filter_outputs import preferences_frame
from tasks.paths import ADAPTER, FILTERED, VECTORS
from tasks.train import summary

SECTIONS: dict[str, Any] = {
    "download": encyclopaedia(**WORLD | {"train_questions": 60, "hops": [2], "seed": 2}),
    "embed": SMOKE["embed"],
    "retriever": {"k": 40, "pool": 60, "search": "hybrid"},  # of 200 passages: noise finds some gold on every CPU
    "pipeline": {"name": "leret", "template": "bare", "max_tokens": 600},
    "generator": {"kind": "local", "model": "letters"},
    "reward": {"terms": {"recall": 1.0}},
    "filter": {
        "target": 8,
        "batch_size": 4,
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
        "validation": {"every": 2, "keep": "best"},
        "sft_batch": 4,
        "sft_learning_rate": 1e-3,
        "ipo_learning_rate": 1e-3,
        "warmup_steps": 1,
        "max_tokens": 6,
        "lora": {"rank": 4, "alpha": 8},
    },
    "evaluate": {
        "arms": ["base", "few_shot", "sft", "trained"],
        "seeds": 1,
        "reader": PLAYER,
        "resamples": 100,
    },
}


def test_leret_goes_through_all_stages(workplace: Path, tiny: str) -> None:
    """A model of letters learns with a retriever from another package, which is part of the index identity."""
    save_letters(Path("letters"), spread=0.3, room=4096, printable=True)
    params = world_params(tiny, **SECTIONS | {"retriever": SECTIONS["retriever"] | {"function": "by_hand:Backwards"}})
    ran = run_stages(params)
    index = read_json(VECTORS / "manifest.json")["identity"]
    assert read_json(FILTERED / "manifest.json")["index"] == search_identity(index, params.retriever) != index
    sampled, pairs = ran.filtered, preferences_frame()
    assert sampled["tried"] == 8 and 0 < sampled["kept"] <= 8 and sampled["prompts"] == 3
    assert len(pairs) == sampled["pairs"] + sampled["pairs_held_out"] > 0 and (pairs["margin"] > 0).all()
    assert pairs["target_is_best"].all() and not pairs["in_other_split"].any()
    figures = summary(ran.history, "accuracy")
    assert figures["validation_first_ndcg_at_10"] >= 0.0 and figures["validation_seconds"] > 0.0
    assert read_json(ADAPTER / "harr.json")["kept_questions"] == 6 and figures["target_margin_nats"] == 10.0
    assert 0 <= figures["sft_accuracy_last_10"] <= 1 and 0 <= figures["ipo_accuracy_last_10"] <= 1
    assert "reward_last_10" not in figures and "IPO follows SFT" in Path("plots/train.svg").read_text()
    assert {row["phase"] for row in ran.history} == {0.0, 1.0} and ran.arms["runs"] == 0.0
    assert {arm: len(by_seed) for arm, by_seed in ran.rows.items()} == dict.fromkeys(params.evaluate.arms, 1)
    found = read_json(Path("metrics/evaluate.json"))["arms"]
    for arm in params.evaluate.arms:
        mean = {name: metric["mean"] for name, metric in found[arm].items()}
        wanted = {"recall", "recall_after_1", "recall_after_2", "ap_after_1", "ap_after_2", "answer_em", "answer_f1"}
        assert wanted <= set(mean) and found[arm]["recall"]["n"] == 12
        assert mean["recall"] == pytest.approx(mean["recall_after_2"])
        assert mean["recall_after_1"] <= mean["recall_after_2"]
        queries = {hop.query for episode in ran.episodes[arm] for hop in episode.outcome.hops}
        assert len(queries) > 1 and all(len(query) <= 6 for query in queries)
    assert max(metrics["recall"]["mean"] for metrics in found.values()) > 0
    assert ran.merged["logit_difference_max"] < 1e-3
    ids = torch.arange(2, 60)[None]
    begun, sft, merged = (
        load_model(name)[0](ids).logits for name in ("letters", "models/adapter/sft", "models/language_model")
    )
    assert not torch.equal(begun, sft) and not torch.equal(sft, merged)
