"""The score of the encoder's tokens, worked by hand; the arm over a run's own corpus; what cannot be compared."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from harr_late_interaction.encoder_tokens import TokenScores, mean_of_best
from sentence_transformers import SentenceTransformer
from stages import nothing, world_params
from token_table import save_table

from harr.corpus.passages import Passages, read_questions
from harr.embed.encoder import Encoder
from harr.errors import ModelError, ParamsError
from harr.types import Question, Search
from tasks.paths import CORPUS, PLACES, QUESTIONS
from tasks.play import play_arms

TOKENS = "harr_late_interaction.encoder_tokens:EncoderTokens"


def scores_by_hand(model: SentenceTransformer, query: str, texts: list[str], width: int) -> list[float]:
    """Half the cosine and half MaxSim, over the hidden states that sentence-transformers gives."""
    axes = np.linalg.qr(np.random.default_rng(0).standard_normal((model.get_embedding_dimension() or 0, width)))[0]

    def tokens(text: str) -> np.ndarray[Any, Any]:
        hidden = np.asarray(model.encode(text, output_value="token_embeddings", convert_to_numpy=False)) @ axes
        return hidden / np.linalg.norm(hidden, axis=-1, keepdims=True)

    vectors = model.encode([query, *texts], normalize_embeddings=True)
    alike = [(tokens(query) @ tokens(text).T).max(-1).mean() for text in texts]
    return [float(vectors[0] @ vector + one) / 2 for vector, one in zip(vectors[1:], alike, strict=True)]


def test_the_score_is_the_mean_of_the_best_by_hand(tiny: str) -> None:
    """Texts of several lengths are encoded in one batch."""
    model, texts = SentenceTransformer(tiny, device="cpu"), ["In summer Bath is warm.", "Keswick", "Who?" * 9]
    model.max_seq_length = 64
    asked = [("What is Keswick like?", texts), ("Who?", texts[::-1]), ("Who?", texts[:1])]
    found = TokenScores(Encoder(tiny, max_tokens=64), 32)(asked)
    for (query, own), scores in zip(asked, found, strict=True):
        assert scores == pytest.approx(scores_by_hand(model, query, own, 32), abs=3e-3), "int8 costs little"
    assert found[1][-1] == found[2][0]


def test_a_passage_keeps_ten_kilobytes_of_its_first_tokens(tiny: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harr_late_interaction.encoder_tokens.ROOM", 5 * 32)
    scores = TokenScores(Encoder(tiny, max_tokens=64), 32)
    scores([("Bath", ["In summer Bath is warm and its market is full of fruit."])])
    [kept] = scores._passages._kept.values()
    assert kept.tokens_LW.shape == (5, 32) and kept.tokens_LW.dtype == torch.int8
    assert scores([]) == []


def test_the_pool_is_ordered_anew_and_is_that_of_the_search(make: Callable[..., Any], tiny: str) -> None:
    late, searches = make(TOKENS, width=32), [Search(Question("q", f"What of {n}?"), f"What of {n}?") for n in range(3)]
    model = SentenceTransformer(tiny, device="cpu")
    for search, found, pool in zip(searches, late.retrieve(searches), late.base.retrieve(searches), strict=True):
        assert len(found.passages) == 3 and list(found.scores) == sorted(found.scores, reverse=True)
        by_hand = scores_by_hand(model, f"Query: {search.query}", [passage.content for passage in found.passages], 32)
        assert found.scores == pytest.approx(by_hand, abs=3e-3)
        assert pool.reached == found.reached


def test_it_is_an_arm_of_a_run(place: Path, tiny: str) -> None:
    late = {"name": "late", "retriever": TOKENS, "settings": {"width": 32}}
    run = world_params(tiny, evaluate={"arms": ["frozen", late], "seeds": 1, "candidates": ["corpus"]})
    episodes = play_arms(run, read_questions(QUESTIONS / "test.jsonl"), nothing, model=None)[1]
    found = {arm: [s.retrieval.passages for one in played for s in one.steps] for arm, played in episodes.items()}
    assert found["late"] != found["frozen"] and all(len(one) == run.retriever.k for one in found["late"])
    assert len(Passages.open(CORPUS)) == 200 and PLACES.index.exists()


def test_an_encoder_without_hidden_states_or_of_other_vectors_is_refused(
    make: Callable[..., Any], tmp_path: Path
) -> None:
    save_table(tmp_path / "static", 48)
    static = Encoder(str(tmp_path / "static"), max_tokens=64)
    with pytest.raises(ParamsError, match=r"compares tokens of encoder\.model alone; leave retriever\.encoder out"):
        make(TOKENS, encoder=static, width=32)
    with pytest.raises(ModelError, match=r"is a table of token vectors, of which settings\.width 32 cannot be kept"):
        TokenScores(static, 32)
    with pytest.raises(ModelError, match=r"has hidden states of \d+ numbers, of which settings\.width 1000 cannot"):
        make(TOKENS, width=1000)
    with pytest.raises(ParamsError, match="settings of EncoderTokens: unknown parameter widht; did you mean width"):
        make(TOKENS, widht=32)


def test_a_passage_of_one_token_beside_a_longer_one() -> None:
    """Zeros are no tokens: also where every product of a token is below 0, none scores 0."""
    passages = torch.tensor([[[-127, 0], [0, 0]], [[-127, 0], [0, -127]]], dtype=torch.int8)
    assert mean_of_best(torch.tensor([[1.0, 0.0]]), passages).tolist() == [-1.0, 0.0]
    assert mean_of_best(torch.tensor([[1.0, 0.0]]), passages[:1]).tolist() == [-1.0]
