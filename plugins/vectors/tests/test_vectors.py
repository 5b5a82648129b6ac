"""Encoders whose vectors come from files or from an API: a stand-in of /v1/embeddings on loopback."""

import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from harr_vectors.external import Api, External
from harr_vectors.wrap import wrap
from serving import Served, serving

from harr.embed.embedding_cache import text_hashes
from harr.embed.encoder import Encoder
from harr.errors import CorpusError, HarrError, ModelError, ParamsError
from harr.io.jsonl import read_rows
from harr.io.model_folder import find_folder
from harr.rag.policies.encoder_adapter import begin
from harr.rag.policies.state import state

WIDTH = 6


def vector_of(text: str, seed: int = 0) -> np.ndarray:
    """A vector that follows from a text."""
    return np.random.default_rng([seed, *text.encode()]).normal(size=WIDTH).astype(np.float32)


def unit_of(text: str) -> np.ndarray:
    return vector_of(text) / np.linalg.norm(vector_of(text))


def api() -> Api:
    return Api("text-embedder", "HARR_TEST_URL", "HARR_TEST_KEY")


class Answers:
    """What the API replies, the last one first; another model has another ``seed``."""

    seed = 0
    change = staticmethod(lambda rows: rows)

    def __call__(self, body: dict[str, Any], number: int) -> tuple[int, Any]:
        rows = [
            {"object": "embedding", "index": row, "embedding": vector_of(text, self.seed).tolist()}
            for row, text in enumerate(body["input"])
        ]
        return 200, {"object": "list", "model": body["model"], "data": self.change(rows[::-1])}


@pytest.fixture
def answers() -> Answers:
    return Answers()


@pytest.fixture
def server(answers: Answers, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    with serving(answers) as started:
        monkeypatch.setenv("HARR_TEST_URL", started.base_url)
        monkeypatch.setenv("HARR_TEST_KEY", "sk-vectors")
        yield started


def write_rows(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture
def passages(tmp_path: Path) -> Path:
    return write_rows(
        tmp_path / "corpus.jsonl", {"id": "a", "text": "Ada was born.", "title": "Ada"}, {"id": "b", "text": "Bo."}
    )


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    return write_rows(tmp_path / "train.jsonl", {"id": "q", "question": "Where was Ada born?", "supporting": ["a"]})


def test_the_vectors_of_files_are_an_encoder(tmp_path: Path, passages: Path, questions: Path) -> None:
    np.save(tmp_path / "passages.npy", np.stack([vector_of("Ada: Ada was born."), vector_of("Bo.")]))
    (tmp_path / "passages.ids").write_text("a\nb\n", encoding="utf-8")
    asked = write_rows(tmp_path / "asked.jsonl", {"id": "q", "vector": vector_of("Where was Ada born?").tolist()})
    line = wrap(tmp_path / "kept", [tmp_path / "passages.npy", asked], [passages, questions], None)
    assert line.endswith("kept: vectors of width 6, 3 of them from files")
    encoder = Encoder(str(tmp_path / "kept"), max_tokens=256)
    texts = ["Where was Ada born?", "Ada: Ada was born.", "Bo."]
    np.testing.assert_allclose(encoder.encode(texts), [unit_of(text) for text in texts], atol=1e-6)
    with pytest.raises(ModelError, match="the text 'And Bo' has no vector in the files, and no API was named"):
        encoder.encode(["And Bo"])
    with pytest.raises(ParamsError, match="has no weights here, so it cannot be trained; set retriever"):
        begin(encoder, None, 0)


def test_a_row_with_its_text_has_the_vector_of_the_passage(tmp_path: Path) -> None:
    row = {"id": "a", "title": "Ada", "text": "Ada was born.", "vector": vector_of("Ada").tolist()}
    rows = write_rows(tmp_path / "v.jsonl", row)
    short = write_rows(tmp_path / "short.jsonl", {name: row[name] for name in ("id", "text", "vector")})
    for name, vectors, texts in (("both", rows, [rows]), ("alone", rows, []), ("by id", short, [rows])):
        wrap(tmp_path / name, [vectors], texts, None)
        encoder = Encoder(str(tmp_path / name), max_tokens=256)
        np.testing.assert_allclose(encoder.encode(["Ada: Ada was born."]), [unit_of("Ada")], atol=1e-6, err_msg=name)


def test_an_api_gives_the_vectors_that_no_file_has(tmp_path: Path, server: Served) -> None:
    kept = write_rows(tmp_path / "v.jsonl", {"text": "Bo.", "vector": vector_of("Bo.").tolist()})
    wrap(tmp_path / "both", [kept], [], api())
    encoder = Encoder(str(tmp_path / "both"), max_tokens=256, query_prompt="query: ")
    texts = [f"Where was {number} born?" for number in range(300)]
    vectors_ND = encoder.encode(["Bo.", *texts], batch_size=400)
    np.testing.assert_allclose(vectors_ND, [unit_of(text) for text in ["Bo.", *texts]], atol=1e-6)
    assert [len(body["input"]) for body in server.bodies[:2]] == [1, 1], "the model is compared at first"
    assert sorted(len(body["input"]) for body in server.bodies[2:]) == [44, 128, 128]
    assert server.keys == {"Bearer sk-vectors"}
    prompted_ND = encoder.encode(["Bo", "Bo."], prompt="query: ")
    np.testing.assert_allclose(
        prompted_ND, [unit_of("query: Bo"), unit_of("Bo.")], atol=1e-6, err_msg="a file has none"
    )


def test_a_state_is_the_sum_of_its_query_its_last_answer_and_its_question(tmp_path: Path, server: Served) -> None:
    wrap(tmp_path / "api", [], [], api())
    encoder, bodies = Encoder(str(tmp_path / "api"), max_tokens=64), server.bodies
    hops = [("Where does she work?", "Acme"), ("Who owns it?", "")]
    sought = unit_of("Who founded it?") + unit_of("Acme") + 0.3 * unit_of("Who founded the firm?")
    states = [state("Who founded the firm?", hops, "Who founded it?"), state("Bo.", query="Bo."), "Query: Bo.", "Bo."]
    vectors = encoder.encode(states)
    np.testing.assert_allclose(vectors[0], sought / np.linalg.norm(sought), atol=1e-6)
    np.testing.assert_allclose(vectors[1:], np.tile(unit_of("Bo."), (3, 1)), atol=1e-6)
    like_one = "Original Question: a\nHistory: [1]\nQuery: b"
    np.testing.assert_allclose(encoder.encode([like_one]), [unit_of(like_one)], atol=1e-6)
    asked = len(bodies)
    encoder.encode(["Bo.", "Acme"])
    encoder.bfloat16().encode(["Acme"])  # a copy asks through the same connection
    assert len(bodies) == asked  # no text is paid for twice


def test_a_text_of_a_file_is_no_state_and_vectors_are_summed_on_the_processor(tmp_path: Path) -> None:
    wrap(tmp_path / "out", [write_rows(tmp_path / "v.jsonl", {"text": "Query: fee", "vector": [3.0, 4.0]})], [], None)
    encoder = Encoder(str(tmp_path / "out"), max_tokens=64)
    np.testing.assert_allclose(encoder.encode(["Query: fee"]), [[0.6, 0.8]], atol=1e-6)
    module = encoder.model.to("meta")[0]  # any device that is not the processor's
    features = module.preprocess(["Query: fee"])
    assert not any(isinstance(value, torch.Tensor) for value in features.values())
    assert module(features)["sentence_embedding"].device.type == "meta"


def test_words_beyond_the_limit_are_cut(tmp_path: Path, server: Served) -> None:
    wrap(tmp_path / "api", [], [], api())
    encoder = Encoder(str(tmp_path / "api"), max_tokens=8)
    text = " ".join(f"word{number}" for number in range(20))
    assert encoder.token_counts([text]).tolist() == [20]
    np.testing.assert_allclose(encoder.encode([text]), [unit_of(" ".join(text.split()[:8]))], atol=1e-6)
    assert encoder.cut([text], 2) == ["word0 word1"]


def test_another_model_behind_the_address_is_refused(tmp_path: Path, server: Served, answers: Answers) -> None:
    wrap(tmp_path / "api", [], [], api())
    answers.seed = 1
    with pytest.raises(ModelError, match="text-embedder at HARR_TEST_URL gives another vector than before"):
        Encoder(str(tmp_path / "api"), max_tokens=64).encode(["Bo."])
    rows = [{"text": f"{number}.", "vector": vector_of(f"{number}.").tolist()} for number in range(20)]
    with pytest.raises(ModelError, match="text-embedder of the API did not make the vectors of the files"):
        wrap(tmp_path / "both", [write_rows(tmp_path / "v.jsonl", *rows)], [], api())
    narrow = write_rows(tmp_path / "narrow.jsonl", {"text": "Bo.", "vector": [1.0, 0.0]})
    with pytest.raises(ModelError, match=r"width 6 and 2, or other neighbours"):
        wrap(tmp_path / "both", [narrow], [], api())


def test_an_address_is_no_part_of_the_folder(tmp_path: Path, server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    wrap(tmp_path / "api", [], [], api())
    stored = b"".join(path.read_bytes() for path in (tmp_path / "api").iterdir())
    assert server.base_url.encode() not in stored and b"sk-vectors" not in stored
    monkeypatch.delenv("HARR_TEST_URL")
    with pytest.raises(ParamsError, match="set the environment variable HARR_TEST_URL to its address"):
        Encoder(str(tmp_path / "api"), max_tokens=64).encode(["Bo."])


@pytest.mark.parametrize(
    ("rows", "fault"),
    [
        ([{"text": "a", "vector": [1.0, 2.0]}, {"text": "b", "vector": [1.0]}], "vectors of several widths (1, 2)"),
        ([{"text": "a", "vector": [1.0, float("nan")]}], "vector 0 is zero or not finite"),
        ([{"text": "a", "vector": [0.0, 0.0]}], "vector 0 is zero or not finite"),
        ([{"text": "a", "vector": ["x", "y"]}], "v.jsonl:1: vector holds something else than numbers"),
        ([{"text": "a", "vector": [[1.0], [2.0]]}], "v.jsonl:1: vector holds something else than numbers"),
        ([{"text": "a"}], "v.jsonl:1: no vector; each row has id or text, and vector"),
        ([{"vector": [1.0]}], "v.jsonl:1: row without id"),
        ([{"id": "z", "vector": [1.0]}], "v.jsonl:1: no text of id z; name the file with it by --texts"),
        (
            [{"text": "a", "vector": [1.0, 0.0]}, {"text": "a", "vector": [0.0, 1.0]}],
            "two different vectors of the text 'a'",
        ),
    ],
)
def test_a_wrong_row_is_one_line(tmp_path: Path, passages: Path, rows: list[dict[str, Any]], fault: str) -> None:
    with pytest.raises(HarrError) as caught:
        wrap(tmp_path / "out", [write_rows(tmp_path / "v.jsonl", *rows)], [passages], None)
    assert fault in str(caught.value) and "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_an_array_has_an_id_a_row(tmp_path: Path, passages: Path) -> None:
    np.save(tmp_path / "v.npy", np.ones((3, 2), np.float32))
    with pytest.raises(CorpusError, match="has an id a line in X"):
        wrap(tmp_path / "out", [tmp_path / "v.npy"], [passages], None)
    (tmp_path / "v.ids").write_text("a\nb\n", encoding="utf-8")
    with pytest.raises(CorpusError, match=r"has shape \(3, 2\), and .*v.ids 2 ids; one a row is expected"):
        wrap(tmp_path / "out", [tmp_path / "v.npy"], [passages], None)


def test_nothing_is_written_over(tmp_path: Path) -> None:
    with pytest.raises(ParamsError, match="give --vectors FILE, or --model NAME"):
        wrap(tmp_path / "out", [], [], None)
    with pytest.raises(ParamsError, match="is there already"):
        wrap(tmp_path, [tmp_path / "v.jsonl"], [], None)


def test_an_answer_without_embeddings_is_named(tmp_path: Path, server: Served, answers: Answers) -> None:
    answers.change = lambda rows: rows[1:]
    with pytest.raises(ParamsError, match="the answer does not hold 1 embeddings; HARR_TEST_URL must be the address"):
        wrap(tmp_path / "api", [], [], api())


def test_an_answer_in_base64_is_read_and_one_of_words_is_named(
    tmp_path: Path, server: Served, answers: Answers
) -> None:
    """Some servers answer in their own way, whatever is asked."""

    def change(coded: Callable[[list[float]], Any]) -> None:
        answers.change = lambda rows: [row | {"embedding": coded(row["embedding"])} for row in rows]

    change(lambda vector: base64.b64encode(np.array(vector, np.float32).tobytes()).decode())
    wrap(tmp_path / "api", [], [], api())
    np.testing.assert_allclose(
        Encoder(str(tmp_path / "api"), max_tokens=64).encode(["Bo."]), [unit_of("Bo.")], atol=1e-6
    )
    change(lambda vector: ["one", "two"])
    with pytest.raises(ParamsError, match="the answer does not hold 1 embeddings"):
        wrap(tmp_path / "words", [], [], api())


def test_a_class_of_no_installed_package_is_refused(tmp_path: Path) -> None:
    """modules.json names a class; only those that a package declares are imported."""
    External(text_hashes(["a"]), np.eye(1, 2, dtype=np.float32), np.eye(1, 2, dtype=np.float32)[0], None, ["a"])
    kept = write_rows(tmp_path / "v.jsonl", {"text": "a", "vector": [1.0, 0.0]})
    wrap(tmp_path / "out", [kept], [], None)
    listing = tmp_path / "out/modules.json"
    assert next(iter(read_rows(kept))).values["text"] == "a"
    listing.write_text(listing.read_text().replace("harr_vectors.external.External", "harr_vectors.wrap.wrap"))
    (tmp_path / "out/sha256sums.txt").unlink()
    with pytest.raises(ModelError, match=r"asks for code of its own \(harr_vectors.wrap.wrap\)"):
        find_folder(str(tmp_path / "out"))
