"""A corpus that changed: only new texts are embedded, and the bytes are those of a full run."""

import random
from pathlib import Path

import numpy as np
import pytest
from digests import digests

from harr.corpus.passages import Passages, write_passages
from harr.corpus.vectors import Vectors
from harr.embed.encoder import Encoder
from harr.embed.shards import embed_corpus
from harr.io.files import read_json, sha256, write_json
from harr.params.embed import EmbedParams
from harr.types import Passage

PARAMS = EmbedParams(dtype="float32", shard_size=25, batch_size=8)


@pytest.fixture(scope="module")
def encoder(tiny: str) -> Encoder:
    return Encoder(tiny, max_tokens=80)


def passage(number: int, what: str = "has a river") -> Passage:
    """Make a text of 8 to 70 tokens, so that batches are padded to different lengths."""
    rng = random.Random(number)
    words = " ".join(rng.choice(["snow", "mill", "bridge", "church"]) for _ in range(rng.randrange(60)))
    return Passage(f"p{number}", f"Town {number} {what}. {words}", f"Town {number}")


def write(folder: Path, passages: list[Passage]) -> Passages:
    write_passages(passages, folder)
    return Passages.open(folder)


@pytest.fixture
def before(tmp_path: Path) -> Passages:
    return write(tmp_path / "before", [passage(n) for n in range(60)])


@pytest.fixture
def after(tmp_path: Path) -> Passages:
    """12 are new, 5 gone, 3 changed: nearly all others change rows and shards."""
    kept = [passage(n, "has no river" if n in (7, 30, 50) else "has a river") for n in range(60) if not 20 <= n < 25]
    return write(tmp_path / "after", kept[:40] + [passage(n) for n in range(200, 212)] + kept[40:])


@pytest.mark.parametrize("settings", [{}, {"dtype": "bfloat16"}, {"tokens": 16}], ids=str)
def test_only_new_texts_are_embedded_and_the_bytes_are_those_of_a_full_run(
    before: Passages, after: Passages, encoder: Encoder, tmp_path: Path, settings: dict[str, object]
) -> None:
    params = PARAMS.model_copy(update=settings)
    embed_corpus(before, encoder, params, tmp_path / "out", tmp_path / "work")
    figures = embed_corpus(after, encoder, params, tmp_path / "out", tmp_path / "work")
    assert (figures["embedded"], figures["reused"], figures["passages"]) == (15, 52, 67)
    full = embed_corpus(after, encoder, params, tmp_path / "full", tmp_path / "work2")
    assert (full["embedded"], full["reused"]) == (67, 0)
    assert digests(tmp_path / "out") == digests(tmp_path / "full")
    assert Vectors.of(after, tmp_path / "out").rows == 67


def test_what_embeds_must_be_the_same(
    before: Passages, after: Passages, encoder: Encoder, tiny: str, tmp_path: Path
) -> None:
    """Nothing is reused from another encoder or number format; auto keeps the format in place."""
    out, work = tmp_path / "out", tmp_path / "work"
    embed_corpus(before, encoder, PARAMS.model_copy(update={"dtype": "bfloat16"}), out, work)
    assert embed_corpus(after, encoder, PARAMS, out, work)["embedded"] == 67
    shorter = Encoder(tiny, max_tokens=79)
    assert embed_corpus(before, shorter, PARAMS, out, work)["embedded"] == 60
    auto = embed_corpus(after, shorter, PARAMS.model_copy(update={"dtype": "auto"}), out, work)
    assert (auto["embedded"], auto["bfloat16"]) == (15, 0)


def test_what_is_damaged_or_gets_other_bytes_today_is_embedded_anew(
    before: Passages, after: Passages, encoder: Encoder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Bytes may change with an update of torch or on another processor."""
    out = tmp_path / "out"
    embed_corpus(before, encoder, PARAMS, out, tmp_path / "work")
    path = out / "vectors-00001.npy"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    assert embed_corpus(after, encoder, PARAMS, out, tmp_path / "work")["embedded"] == 67
    manifest = read_json(out / "manifest.json")
    for shard in manifest["shards"]:
        path = out / shard["file"]
        np.save(path, np.nextafter(np.load(path), np.float32(2)))
        shard["sha256"] = sha256(path)
    write_json(out / "manifest.json", manifest)
    (out / "sha256sums.txt").unlink()
    assert embed_corpus(before, encoder, PARAMS, out, tmp_path / "work")["embedded"] == 60
    assert "other bytes today (cosine 1.000000)" in capsys.readouterr().out
