"""Embedding by shards: what is written, and that an interrupted run ends with the same bytes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from digests import digests

from harr.corpus.passages import Passages, write_passages
from harr.corpus.vectors import Vectors
from harr.embed.encoder import Encoder
from harr.embed.shards import embed_corpus
from harr.errors import DamagedFile, ModelError
from harr.io.files import finish
from harr.params.embed import EmbedParams
from harr.types import Passage

Stage = Callable[..., dict[str, float]]
PARAMS = EmbedParams(dtype="float32", shard_size=16, batch_size=8)


@pytest.fixture(scope="module")
def encoder(tiny: str) -> Encoder:
    return Encoder(tiny, max_tokens=32)


@pytest.fixture(scope="module")
def passages(tmp_path_factory: pytest.TempPathFactory) -> Passages:
    """100 passages in seven shards of 16; every tenth has 50 words and is cut at 32 tokens."""
    folder = tmp_path_factory.mktemp("embed") / "corpus"
    long = [i % 10 == 0 for i in range(100)]
    write_passages([Passage(f"p{i}", f"Town {i} has a river. " + "snow " * 50 * long[i]) for i in range(100)], folder)
    return Passages.open(folder)


@pytest.fixture
def stage(passages: Passages, encoder: Encoder, tmp_path: Path) -> Stage:
    """The stage over these passages."""

    def run(params: EmbedParams = PARAMS, out: str = "out", work: str = "work") -> dict[str, float]:
        return embed_corpus(passages, encoder, params, tmp_path / out, tmp_path / work)

    return run


@pytest.mark.fault(19)
def test_rows_are_in_corpus_order_and_counted(
    stage: Stage, passages: Passages, encoder: Encoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[str] = []
    count = encoder.token_counts
    monkeypatch.setattr(encoder, "token_counts", lambda texts, **more: counted.extend(texts) or count(texts, **more))
    figures = stage()
    assert len(counted) == len(set(counted)), "lengths are counted once a text"
    vectors = Vectors.open(tmp_path / "out")
    expected = encoder.encode(passages.contents(0, 100))
    np.testing.assert_allclose(vectors.take(np.arange(100)), expected, atol=1e-6)
    assert len(vectors.manifest["shards"]) == 7
    assert (figures["passages"], figures["truncated"], figures["truncated_share"]) == (100, 10, 0.1)
    assert (figures["width"], figures["bfloat16"], figures["embedded"]) == (64, 0, 100)
    assert figures["texts_per_second"] > 0
    finish(tmp_path / "work")
    assert list((tmp_path / "work").iterdir()) == []


def interrupt_after(shards: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the encoder embed this many shards and then fail as if by Ctrl-C."""
    encode, calls = Encoder.encode, []

    def limited(*args: Any, **kwargs: Any) -> Any:
        calls.append(args)
        if len(calls) > shards:
            raise KeyboardInterrupt
        return encode(*args, **kwargs)

    monkeypatch.setattr(Encoder, "encode", limited)


@pytest.mark.fault(1, 3)
def test_a_stopped_run_goes_on(stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        interrupt_after(3, patch)
        stage()
    figures = stage()
    assert (figures["embedded"], figures["truncated"]) == (52, 10), "3 of 7 shards were finished"
    stage(out="undisturbed", work="work2")
    assert digests(tmp_path / "out") == digests(tmp_path / "undisturbed")
    assert stage()["embedded"] == 0, "as after a kill before the stage has ended"
    finish(tmp_path / "work")
    assert digests(tmp_path / "out") == digests(tmp_path / "undisturbed")
    assert stage()["embedded"] == 100, "the code may have changed"
    path = tmp_path / "out/vectors-00003.npy"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DamagedFile, match=r"vectors-00003\.npy is damaged .*`dvc repro -f -s embed"):
        Vectors.open(tmp_path / "out")


def test_vectors_that_are_no_numbers_end_the_stage_at_the_first_shard(
    tiny: str, tmp_path: Path, passages: Passages
) -> None:
    odd = Encoder(tiny, max_tokens=32)
    next(odd.model.parameters()).data.fill_(float("nan"))
    with pytest.raises(
        ModelError, match=r"gives vectors that are no numbers, from passage 0 on; set embed\.dtype: float32"
    ):
        embed_corpus(passages, odd, PARAMS, tmp_path / "out", tmp_path / "work")
    assert not (tmp_path / "out").exists()


@pytest.mark.fault(23)
def test_auto_is_what_the_machine_multiplies(
    stage: Stage, encoder: Encoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for fast, dtype in ((True, "bfloat16"), (False, "float32")):
        monkeypatch.setattr("harr.compute.precision.multiplies_bfloat16", lambda fast=fast: fast)
        assert stage(PARAMS.model_copy(update={"dtype": "auto"}), dtype)["bfloat16"] == float(fast)
        assert Vectors.open(tmp_path / dtype).manifest["dtype"] == dtype
    assert next(encoder.model.parameters()).dtype == torch.float32


def test_identity_covers_encoder_dtype_and_corpus(encoder: Encoder, tiny: str, tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    write_passages([Passage("p", "A corpus.")], one)
    write_passages([Passage("p", "Another corpus.")], other)
    half = PARAMS.model_copy(update={"dtype": "bfloat16"})
    longer = Encoder(tiny, max_tokens=33)
    identities = set()
    for corpus, used, params in (
        (one, encoder, PARAMS),
        (one, encoder, half),
        (one, longer, PARAMS),
        (other, encoder, PARAMS),
    ):
        embed_corpus(Passages.open(corpus), used, params, tmp_path / "out", tmp_path / "work")
        identities.add(Vectors.open(tmp_path / "out").identity)
    assert len(identities) == 4
