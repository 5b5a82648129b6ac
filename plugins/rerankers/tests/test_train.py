"""A cross-encoder is trained on the pools of a small project, and the arm rerank plays with it."""

from pathlib import Path

import pytest
from harr_rerankers.train import train
from stages import make_world, nothing, world_params
from transformers.trainer_callback import TrainerState

from harr.errors import ParamsError
from tasks.paths import QUESTIONS
from tasks.play import draw_test_questions, play_arms


def stop(*_: object) -> None:
    """End as a kill would."""
    raise KeyboardInterrupt


def test_the_arm_rerank_plays_what_was_trained(place: Path, tiny: str, monkeypatch: pytest.MonkeyPatch) -> None:
    params = world_params(tiny, retriever={"k": 3, "pool": 10})
    make_world(params)
    with monkeypatch.context() as killed, pytest.raises(KeyboardInterrupt):
        killed.setattr(TrainerState, "save_to_json", stop)
        train(params, Path("mine/reranker"), "", epochs=2, negatives=2, rate=1e-3)
    assert list(Path("work/reranker").rglob("checkpoint-*")), "half of a checkpoint"
    line = train(params, Path("mine/reranker"), "", epochs=2, negatives=2, rate=1e-3)
    assert line.startswith("mine/reranker: learnt from ") and "settings: {model: mine/reranker}" in line
    assert not list(Path("work/reranker").iterdir())
    with pytest.raises(ParamsError, match="mine/reranker is there already"):
        train(params, Path("mine/reranker"), "", epochs=2, negatives=2, rate=1e-3)
    settings = {"model": "mine/reranker"}
    rerank = {"name": "rerank", "retriever": "harr_rerankers.reranked:rerank", "settings": settings}
    evaluate = {"arms": ["frozen", rerank]}
    played = world_params(tiny, retriever={"k": 3, "pool": 10}, evaluate=evaluate)
    rows, _ = play_arms(played, draw_test_questions(played, QUESTIONS / "test.jsonl"), nothing, model=None)
    assert [len(rows[arm][0]) for arm in ("frozen", "rerank")] == [12, 12]
