"""Evaluation over lengths: logs that go on after a kill, places, and a table."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import torch
from harr_lengths.babilong import BabiLongParams, babilong
from harr_lengths.documents import noise_for, stretch_stories
from harr_lengths.plan import plan
from harr_lengths.play import QuestionDocument, on_disk, play_documents

from harr.embed.encoder import Encoder
from harr.params.embed import EmbedParams
from harr.rag.policies.two_tower import TwoTowerPolicy
from harr.types import Hop, Search

NOISE = "harr_encyclopaedia.dataset:noise"
PARAMS = babilong(BabiLongParams(task=1, noise=NOISE, sentences=20, train_questions=4, test_questions=6))


def documents() -> Iterator[QuestionDocument]:
    """Six stories in 30 sentences each."""
    return stretch_stories(PARAMS, 30, noise_for(PARAMS, 30))


@pytest.fixture(scope="module")
def towers(tiny: str) -> TwoTowerPolicy:
    """The untrained encoder as both towers."""
    encoder = Encoder(tiny, max_tokens=32)
    return TwoTowerPolicy(encoder, encoder, None, mode="relative", temperature=0.1, max_tokens=64)


def played(towers: TwoTowerPolicy, log: Path, documents: Iterator[QuestionDocument], **more: int) -> list:
    return play_documents(documents, towers, log, picks=2, total=6, desc="", **more)


def test_a_log_holds_places_and_what_stands_there_and_goes_on_where_it_was_cut(
    towers: TwoTowerPolicy, tmp_path: Path
) -> None:
    whole = played(towers, tmp_path / "whole.jsonl", documents())
    passages_of = {question.id: passages for question, passages in documents()}
    for row in whole:
        passages = passages_of[row["id"]]
        assert len(passages) == 30 and [passages[place].text for place in row["picked"]] == row["texts"]
        assert row["fact_em"] == float(set(row["gold"]) <= set(row["picked"])) and len(row["values"]) == 2
    text = (tmp_path / "whole.jsonl").read_text()
    cut = tmp_path / "cut.jsonl"
    cut.write_text(text[: len(text) // 2])  # in the middle of a line, as a kill leaves it
    again = played(towers, cut, documents())
    assert cut.read_text() == text and again == whole and len(whole) == 6


def test_a_plan_is_greedy_at_width_one_and_the_best_of_all_at_any(towers: TwoTowerPolicy, tmp_path: Path) -> None:
    greedy = played(towers, tmp_path / "log.jsonl", documents())
    for (question, passages), row in zip(documents(), greedy, strict=True):
        own = towers.attach_document(question, passages)
        alone = plan(question, towers, picks=2, width=1)
        assert [own.place[step.retrieval.passages[0].id] for step in alone.steps] == row["picked"]
        best = plan(question, towers, picks=2, width=30)
        values = []
        for first in range(30):
            hops = (Hop("", passages[first].content),)
            search = Search(question, question.text, hops, frozenset({passages[first].id}))
            (text,), _ = towers.state_texts([search])
            q_N = towers.critics(towers.encode_states([text])[0], own, [first]).sum(0)
            values += [float(q_N[second]) for second in range(30) if second != first]
        assert best.steps[-1].retrieval.value == pytest.approx(max(values), abs=1e-5)
    towers.clear()
    beamed = played(towers, tmp_path / "beam.jsonl", documents(), beam=4)
    assert all(b["values"][-1] >= g["values"][-1] - 1e-4 for b, g in zip(beamed, greedy, strict=True))


EMBED = EmbedParams(dtype="float32", shard_size=20)


def test_noise_on_disk_is_encoded_once_and_by_the_tower_that_asks(
    towers: TwoTowerPolicy, tiny: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded: list[str] = []
    forward, noise = Encoder.forward, noise_for(PARAMS, 30)[:50]
    not_yet = set(noise[40:]) - set(noise[:40])

    def noted(self: Encoder, texts: Sequence[str], **options: object) -> torch.Tensor:
        if not_yet & set(texts):
            raise KeyboardInterrupt
        encoded.extend(texts)
        return forward(self, texts, **options)

    monkeypatch.setattr(Encoder, "forward", noted)
    with pytest.raises(KeyboardInterrupt):
        on_disk(noise, towers.actions, EMBED, tmp_path)
    assert set(encoded) == set(noise[:40]), "two of three shards"
    not_yet.clear()
    encoded.clear()
    on_disk(noise, towers.actions, EMBED, tmp_path)
    assert set(encoded) == set(noise[40:])
    encoded.clear()
    on_disk(noise, towers.actions, EMBED, tmp_path)
    assert encoded == [], "all are kept"
    other = Encoder(tiny, max_tokens=32)
    with torch.no_grad():
        next(other.model.parameters()).add_(0.01)
    assert other.identity == towers.actions.identity
    on_disk(noise, other, EMBED, tmp_path)
    assert set(encoded) == set(noise), "other weights, other vectors"
