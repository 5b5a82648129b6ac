"""A checkpoint in the format of Q-RAG's own code plays here as it does there.

benchmarks/peers/qrag.py does the same with a checkpoint that their code trained.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from harr_qrag_checkpoints.checkpoint import convert
from tiny import WIDTH, tiny_encoder

from harr.builders.retrievers import trained_towers
from harr.embed.encoder import Encoder
from harr.errors import ModelError
from harr.params.embed import EncoderParams
from harr.params.retriever import RetrieverParams
from harr.rag.policies.q_values import relative_positions
from harr.types import Hop, Passage, Question, Search

SENTENCES = (
    "Mary moved to the bathroom.",
    "It rained all day.",
    "John went to the hallway.",
    "Mary got the milk.",
    "Mary went to the office.",
    "The old ship left the harbour.",
)
QUESTION = Question("q", "Where is the milk?", candidate_ids=tuple("abcdef"))
ENCODER = EncoderParams(max_tokens=32, normalize=False)
RETRIEVER = RetrieverParams(
    positions="relative_whole", value_scale=0.01, candidates="question", state="sep", max_tokens=128, pick_tokens=30
)
FACTS = {
    "base_model": "tiny",
    "history": True,
    "towers": "both",
    "retriever": {"state": "sep", "max_tokens": 128},
    "positions": "relative_whole",
    "value_scale": 0.01,
    "pick_order": "document",
    "normalize": False,
}


def base() -> Encoder:
    return Encoder(tiny_encoder(), max_tokens=32, normalize=False)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Weights of two towers, each moved its own way, under the names that their code gives them."""
    generator = torch.Generator().manual_seed(0)
    critic = {}
    for prefix in ("state_embed.", "action_embed.model."):
        weights = base().model[0].auto_model.state_dict()
        moved = {
            name: weight + 0.01 * torch.randn(weight.shape, generator=generator) for name, weight in weights.items()
        }
        critic |= {f"{prefix}model.{name}": weight for name, weight in moved.items()}
        critic |= {f"{prefix}head.weight": torch.zeros(256, WIDTH), f"{prefix}cls_token": torch.tensor([101])}
    path = tmp_path / "model_last.pt"
    torch.save({"critic": critic, "policy": {}, "alpha": 0.01, "scheduler": {"total": 9}}, path)
    return path


def by_hand(checkpoint: Path, state: list[str], picked: list[int]) -> list[float]:
    """Q of all sentences as their code has it: mean / 10, neighbouring numbers turned by whole positions."""
    critic = torch.load(checkpoint, weights_only=True)["critic"]

    def tower(prefix: str, texts: Sequence[str]) -> torch.Tensor:
        encoder = base()
        model, tokenizer = encoder.model[0].auto_model, encoder.model.tokenizer
        model.load_state_dict({n.removeprefix(prefix): weight for n, weight in critic.items() if n.startswith(prefix)})
        with torch.no_grad():
            read = [model(**tokenizer([text], return_tensors="pt")).last_hidden_state.mean(1)[0] for text in texts]
        return torch.stack(read) / 10

    state_D = tower("state_embed.model.", [" [SEP] ".join(state)])[0]
    positions = np.floor(relative_positions(len(SENTENCES), picked))
    values = []
    for vector_D, position in zip(tower("action_embed.model.model.", SENTENCES), positions, strict=True):
        value = 0.0
        for half, own in zip(vector_D.chunk(2), state_D.chunk(2), strict=True):
            angles = position * 10_000.0 ** (-torch.arange(0, len(half), 2) / len(half))
            even, odd, cos, sin = half[0::2], half[1::2], angles.cos(), angles.sin()
            turned = torch.stack([even * cos - odd * sin, even * sin + odd * cos], -1)
            value += float(turned.flatten() @ own)
        values.append(value)
    return values


def test_values_and_picks_are_theirs(checkpoint: Path, tmp_path: Path) -> None:
    convert(checkpoint, base(), base(), tmp_path / "model", tmp_path / "work", FACTS)
    towers = trained_towers(ENCODER, RETRIEVER, tmp_path / "model")
    document = towers.attach_document(QUESTION, tuple(map(Passage, QUESTION.candidate_ids, SENTENCES)))
    texts, picked = [QUESTION.text], []
    for _ in range(3):
        hops = tuple(Hop("", SENTENCES[place]) for place in picked)
        search = Search(QUESTION, QUESTION.text, hops, frozenset(document.passages[place].id for place in picked))
        (text,), _ = towers.state_texts([search])
        found = towers.critics(towers.encode_states([text])[0], document, sorted(picked)).sum(0).tolist()
        wanted = by_hand(checkpoint, texts, picked)
        assert found == pytest.approx(wanted, abs=1e-5) and np.ptp(wanted) > 1e-3
        (retrieval,) = towers.retrieve([search])
        place = document.place[retrieval.passages[0].id]
        assert place == max((n for n in range(6) if n not in picked), key=lambda n: wanted[n])
        picked = sorted([*picked, place])
        texts = [QUESTION.text, *(SENTENCES[place] for place in picked)]


def test_what_is_no_such_checkpoint_is_refused_in_a_line(checkpoint: Path, tmp_path: Path) -> None:
    other = torch.load(checkpoint, weights_only=True)
    other["critic"]["state_embed.model.embeddings.word_embeddings.weight"] = torch.zeros(9, WIDTH)
    for damage, line in (
        (lambda: torch.save(other, checkpoint), "was not trained from"),
        (lambda: torch.save({"weights": 1}, checkpoint), "is no checkpoint"),
        (lambda: checkpoint.write_text("model"), "is no checkpoint"),
        (lambda: checkpoint.unlink(), "does not exist"),
    ):
        damage()
        with pytest.raises(ModelError, match=line):
            convert(checkpoint, base(), base(), tmp_path / "model", tmp_path / "work", FACTS)
        assert not (tmp_path / "model").exists()
