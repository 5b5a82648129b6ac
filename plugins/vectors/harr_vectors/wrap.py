"""Make the folder of an external encoder from files of vectors and the address of an API."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer

from harr.datasets.local import passage_of
from harr.embed.embedding_cache import text_hashes
from harr.errors import CorpusError, ModelError, ParamsError
from harr.io.files import draft
from harr.io.jsonl import Row, read_rows
from harr.types import Passage
from harr_vectors.external import PROBE, Api, External, unit

SAMPLES = 8
"""Number of texts kept in words, to compare models with."""


def wrap(out: Path, vectors: Sequence[Path], texts: Sequence[Path], api: Api | None) -> str:
    """Write an encoder to ``out``; return a line about it.

    Args:
        out: a new folder.
        vectors: rows of ``id``, or ``text`` and, if there is one, ``title``, and ``vector``; or X.npy, (n, D), with one
            id per line in X.ids.
        texts: passages and questions with the ids of the vectors.
        api: for other texts.

    Raises:
        ParamsError: neither files nor an API are named, or the folder exists.
        CorpusError: a row is wrong, or an id has no text. ModelError: vectors of several widths, zero, or not finite.
    """
    if not vectors and api is None:
        raise ParamsError("no vectors are named; give --vectors FILE, or --model NAME of an API, or both")
    if out.exists():
        raise ParamsError(f"{out} is there already; remove it, or name another folder")
    known = _one_vector_each(_read_vectors(vectors, _texts_of(texts)))
    samples = list(known)[:SAMPLES] or [PROBE]
    vectors_ND = unit(list(known.values()), ", ".join(map(str, vectors)))
    probe_D1 = vectors_ND[:1].T
    if api is not None:
        asked_SD = api.embed(samples)
        if known:
            _check_same_space(asked_SD, vectors_ND, api.model)
        probe_D1 = asked_SD[:1].T
    vectors_ND = vectors_ND.reshape(-1, len(probe_D1))
    hashes_N2 = text_hashes(list(known))
    encoder = SentenceTransformer(
        modules=[External(hashes_N2, vectors_ND, probe_D1[:, 0].copy(), api, samples)],
        device="cpu",
        local_files_only=True,
    )
    with draft(out.with_name(f".{out.name}"), out) as folder:
        encoder.save_pretrained(str(folder), create_model_card=False)
    where = "" if api is None else f"; others come from {api.model}"
    return f"{out}: vectors of width {len(probe_D1)}, {len(known):,} of them from files{where}"


def _check_same_space(asked_SD: NDArray[np.float32], vectors_ND: NDArray[np.float32], model: str) -> None:
    """Refuse an API if its vectors of the first texts are nearer to those of other texts.

    They need not be equal: many models read a query and a passage differently.
    """
    is_same = (
        asked_SD.shape[1] == vectors_ND.shape[1]
        and np.mean((asked_SD @ vectors_ND.T).argmax(axis=1) == np.arange(len(asked_SD))) >= 0.5
    )
    if not is_same:
        raise ModelError(
            f"{model} of the API did not make the vectors of the files (width {asked_SD.shape[1]} and "
            f"{vectors_ND.shape[1]}, or other neighbours); name the model that did"
        )


def _texts_of(paths: Iterable[Path]) -> dict[str, str]:
    """Return id -> text of passages, including their titles, and of questions."""
    texts: dict[str, str] = {}
    for path in paths:
        for row in read_rows(path):
            text = row.text("question", "question") if "question" in row.values else passage_of(row).content
            key = row.text("id", "row")
            if texts.setdefault(key, text) != text:
                raise CorpusError(f"{row.place}: id {key} stands twice, with different texts; make ids unique")
    return texts


def _read_vectors(paths: Iterable[Path], texts: Mapping[str, str]) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Yield text and vector of every row."""
    for path in paths:
        for row in _read_npy(path) if path.suffix == ".npy" else read_rows(path):
            vector = row.values.get("vector")
            if not isinstance(vector, list | np.ndarray) or not len(vector):
                raise CorpusError(f"{row.place}: no vector; each row has id or text, and vector, a list of numbers")
            if "id" in row.values and (key := row.text("id", "row")) in texts:
                text = texts[key]
            elif "text" in row.values:
                title = row.text("title", "row") if row.values.get("title") else ""
                text = Passage("", row.text("text", "row"), title).content
            else:
                key = row.text("id", "row")
                raise CorpusError(f"{row.place}: no text of id {key}; name the file with it by --texts")
            try:
                yield text, np.fromiter(vector, dtype=np.float32)  # refuses nested lists, unlike asarray
            except (TypeError, ValueError):
                raise CorpusError(f"{row.place}: vector holds something else than numbers") from None


def _read_npy(path: Path) -> Iterator[Row]:
    """Yield the rows of an array whose ids are in a file next to it."""
    listing = path.with_suffix(".ids")
    try:
        vectors_ND, ids = np.load(path, allow_pickle=False), listing.read_text(encoding="utf-8").split("\n")
    except (OSError, ValueError) as error:
        raise CorpusError(f"{path}: cannot be read ({error}); X.npy, (n, D), has an id a line in X.ids") from None
    ids = ids[:-1] if ids[-1] == "" else ids
    if vectors_ND.ndim != 2 or len(ids) != len(vectors_ND):
        raise CorpusError(f"{path} has shape {vectors_ND.shape}, and {listing} {len(ids):,} ids; one a row is expected")
    for number, (key, vector_D) in enumerate(zip(ids, vectors_ND, strict=True)):
        values: dict[str, Any] = {"id": key, "vector": vector_D}
        yield Row(values, f"{listing}:{number + 1}")


def _one_vector_each(rows: Iterable[tuple[str, NDArray[np.float32]]]) -> dict[str, NDArray[np.float32]]:
    """Return one vector per text.

    Raises:
        CorpusError: a text has two different ones.
    """
    known: dict[str, NDArray[np.float32]] = {}
    for text, vector_D in rows:
        first_D = known.setdefault(text, vector_D)
        if first_D.shape != vector_D.shape or not np.allclose(first_D, vector_D, atol=1e-4, equal_nan=True):
            raise CorpusError(f"two different vectors of the text {text[:100]!r}; leave one out")
    return known
