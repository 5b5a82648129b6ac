"""Embedding by a server: a stand-in for /v1/embeddings on loopback that computes with the same model."""

import base64
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from digests import digests
from serving import Served, serving

from harr.corpus.passages import Passages, write_passages
from harr.corpus.vectors import Vectors
from harr.embed.encoder import Encoder
from harr.embed.served import ServedEncoder
from harr.embed.shards import embed_corpus
from harr.errors import ModelError, ParamsError, ServiceUnavailable
from harr.params.embed import EmbedParams
from harr.params.servers import ServerParams
from harr.types import Passage

PARAMS = EmbedParams(shard_size=16, batch_size=4)
ROWS = 60
Change = Callable[[list[np.ndarray]], list[np.ndarray]]


@pytest.fixture(scope="module")
def encoder(tiny: str) -> Encoder:
    return Encoder(tiny, max_tokens=32, passage_prompt="passage: ")


class Answers:
    """The server's replies: the model's vectors at twice their length, in base64, in reverse order."""

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder
        self.change: Change = lambda vectors: vectors
        self.away = range(0)
        """Numbers of the requests at which it closes the connection."""

    def __call__(self, body: dict[str, Any], number: int) -> tuple[int, Any]:
        if number in self.away:
            return 0, ""
        vectors = self.change([2 * self.vector(ids) for ids in body["input"]])
        coded = [base64.b64encode(vector.tobytes()).decode() for vector in vectors]
        rows = [{"object": "embedding", "index": n, "embedding": value} for n, value in enumerate(coded)]
        return 200, {"object": "list", "model": body["model"], "data": rows[::-1]}

    def vector(self, ids: list[int]) -> np.ndarray:
        with torch.inference_mode():
            batch = {"input_ids": torch.tensor([ids]), "attention_mask": torch.ones(1, len(ids), dtype=torch.long)}
            return self.encoder.model(batch)["sentence_embedding"][0].numpy()


@pytest.fixture
def answers(encoder: Encoder) -> Answers:
    return Answers(encoder)


@pytest.fixture
def server(answers: Answers) -> Iterator[Served]:
    with serving(answers) as started:
        yield started


def asked_encoder(encoder: Encoder, server: Served, **values: float) -> ServedEncoder:
    section = {"name": "gpu", "urls": (server.base_url,), "key_variable": "HARR_TEST_KEY"} | values
    return ServedEncoder(encoder, ServerParams(**section))


@pytest.fixture
def client(encoder: Encoder, server: Served) -> ServedEncoder:
    return asked_encoder(encoder, server)


@pytest.fixture(scope="module")
def passages(tmp_path_factory: pytest.TempPathFactory) -> Passages:
    """60 passages, four shards; every tenth is cut at 32 tokens."""
    folder = tmp_path_factory.mktemp("served") / "corpus"
    texts = [f"Town {n} has a river. " + "snow " * 50 * (n % 10 == 0) for n in range(ROWS)]
    write_passages([Passage(f"p{n}", text) for n, text in enumerate(texts)], folder)
    return Passages.open(folder)


def test_a_server_gives_the_vectors_of_the_process(
    passages: Passages, encoder: Encoder, server: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HARR_TEST_KEY", "sk-embed")
    client = asked_encoder(encoder, server, concurrency=3)
    figures = embed_corpus(passages, encoder, PARAMS, tmp_path / "out", tmp_path / "work", client)
    vectors = Vectors.open(tmp_path / "out")
    expected = encoder.encode(passages.contents(0, ROWS), prompt="passage: ")
    np.testing.assert_allclose(vectors.take(np.arange(ROWS)), expected, atol=1e-5)
    assert (figures["passages"], figures["truncated"], figures["bfloat16"]) == (ROWS, 6, 0)
    assert vectors.manifest["encoder"] == encoder.identity and vectors.manifest["dtype"] == "served"
    assert 1 <= server.peak <= 3 and server.keys == {"Bearer sk-embed"}
    assert {body["model"] for body in server.bodies} == {encoder.name}
    assert {body["encoding_format"] for body in server.bodies} == {"base64"}
    assert max(len(ids) for body in server.bodies for ids in body["input"]) == 32
    assert len(server.bodies) == 1 + ROWS // 4  # the check is one request

    embed_corpus(passages, encoder, PARAMS, tmp_path / "local", tmp_path / "work")
    assert Vectors.open(tmp_path / "local").identity != vectors.identity


def test_a_wrong_server_is_one_line_before_anything_is_written(
    passages: Passages, encoder: Encoder, answers: Answers, server: Served, client: ServedEncoder, tmp_path: Path
) -> None:
    cases: list[tuple[Change, type[Exception], str]] = [
        (lambda vectors: [v[::-1].copy() for v in vectors], ModelError, r"does not serve \S+/tiny .* cosine"),
        (lambda vectors: [v[:10] for v in vectors], ModelError, r"vectors of width 10, but .* has width 64"),
        (lambda vectors: vectors[1:], ParamsError, r"7 vectors for 8 passages"),
        (lambda vectors: [0 * v for v in vectors], ParamsError, r"a vector is zero or not finite"),
    ]
    for answers.change, error, line in cases:
        with pytest.raises(error, match=line) as caught:
            embed_corpus(passages, encoder, PARAMS, tmp_path / "out", tmp_path / "work", client)
        assert server.base_url in str(caught.value) and "\n" not in str(caught.value)
        assert list(tmp_path.iterdir()) == []


@pytest.mark.fault(1)
def test_after_a_lasting_failure_the_next_run_goes_on_at_its_shard(
    passages: Passages,
    encoder: Encoder,
    answers: Answers,
    server: Served,
    client: ServedEncoder,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A server that comes back in time is asked again within the run."""
    answers.away = range(1 + 4 + 4 + 1, 1_000)  # after the check and two shards, at the start of the third
    short = asked_encoder(encoder, server, deadline_seconds=0.2)
    with pytest.raises(ServiceUnavailable, match=r"connection failed.*check servers\.gpu\.urls"):
        embed_corpus(passages, encoder, PARAMS, tmp_path / "out", tmp_path / "work", short)
    assert not (tmp_path / "out").exists()
    asked = len(server.bodies)
    answers.away = range(asked + 3, asked + 5)
    figures = embed_corpus(passages, encoder, PARAMS, tmp_path / "out", tmp_path / "work", client)
    assert "resuming embed at shard 2/4" in capsys.readouterr().out and figures["embedded"] == ROWS - 2 * 16
    assert len(server.bodies) == asked + 1 + 7 + 2
    embed_corpus(passages, encoder, PARAMS, tmp_path / "other", tmp_path / "work", client)
    assert digests(tmp_path / "other") == digests(tmp_path / "out")
