"""Embed passages shard by shard: resumable, with one shard in memory.

A shard is a pure function of corpus, encoder, dtype and number (:func:`embed_shard`). Texts of the previous corpus
are not embedded again (harr/embed/embedding_cache.py); the bytes are the same.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm import tqdm

from harr.compute.precision import choose_precision
from harr.corpus.passages import Passages
from harr.corpus.vectors import MANIFEST_KEYS
from harr.embed.embedding_cache import EmbeddingCache, check_cache, embed_passages, text_hashes
from harr.embed.encoder import Encoder
from harr.embed.inference import for_inference, is_bert
from harr.embed.served import ServedEncoder
from harr.errors import DamagedFile, ModelError
from harr.io.files import (
    SUMS,
    appears_whole,
    fingerprint,
    note_published,
    publish,
    read_manifest,
    read_state,
    reopen_work,
    sha256,
    write_json,
)
from harr.io.progress import bar, stoppable
from harr.params.embed import EmbedParams

CHECKED = 8
"""Number of passages on which server and local encoder are compared before the server encodes the corpus."""


def embed_corpus(
    passages: Passages,
    encoder: Encoder,
    params: EmbedParams,
    out: Path,
    work: Path,
    served: ServedEncoder | None = None,
) -> dict[str, float]:
    """Embed every passage and publish ``out``: vectors-00000.npy ... and manifest.json.

    A shard is a float32 array of unit vectors, rows in corpus order. texts-00000.npy identifies its texts: the first
    half of each SHA-256, as two numbers, and the number of tokens, uint64, (rows, 3). If ``out`` has another corpus's
    vectors, those of equal texts are reused. The next call with the same corpus, encoder, dtype and shard size resumes
    the shards in ``work/<fingerprint>``. ``served`` computes instead of ``encoder`` once both agree on the first
    passages. The weights of ``encoder`` may be in bfloat16 afterwards (:func:`choose_embedder`).

    Returns:
        Figures for the metrics file; ``embedded``, ``reused``, ``seconds`` and ``texts_per_second`` are this call's.
    """
    if served:
        served.check(passages.contents(0, min(CHECKED, len(passages))))
    dtype = "served" if served else choose_precision(params.dtype) if encoder.has_weights else "float32"
    header = _header(passages, encoder, dtype)
    plan = {name: header[name] for name in ("corpus", "encoder", "dtype")} | {"shard_size": params.shard_size}
    _take_back(out, work / fingerprint(plan), header, params.shard_size)
    folder = work / fingerprint(plan)
    manifest = _resume(folder, params.shard_size) or header
    (folder / SUMS).unlink(missing_ok=True)  # from a call killed during publication
    write_json(folder / "manifest.json", manifest)
    done = {shard["file"]: shard for shard in manifest["shards"]}
    missing = [number for number in range(-(-len(passages) // params.shard_size)) if _shard_name(number) not in done]
    finished_rows = sum(shard["rows"] for shard in manifest["shards"])
    started, embedded = time.monotonic(), 0
    with bar(total=len(passages), initial=finished_rows, desc="embed", unit="passage") as progress:
        entries = _embed_shards(passages, encoder, served, params, out, folder, manifest, missing, progress.update)
        for entry in stoppable(entries):
            embedded += entry.pop("embedded")
            done[entry["file"]] = entry
            manifest["shards"] = [done[name] for name in sorted(done, key=lambda name: (len(name), name))]
            write_json(folder / "manifest.json", manifest)
    note_published(folder)
    publish(folder, out)
    reused = len(passages) - finished_rows - embedded
    return _figures(manifest, embedded=embedded, reused=reused, seconds=time.monotonic() - started)


def _embed_shards(
    passages: Passages,
    encoder: Encoder,
    served: ServedEncoder | None,
    params: EmbedParams,
    out: Path,
    folder: Path,
    manifest: Mapping[str, Any],
    numbers: Sequence[int],
    on_batch: Callable[[int], object],
) -> Iterator[dict[str, Any]]:
    """Embed these shards, reusing the vectors in ``out``, and yield each one's manifest entry."""
    if not numbers:
        return
    embedder = choose_embedder(encoder, manifest, served)
    cache = check_cache(EmbeddingCache.open(out, manifest), passages, encoder, embedder, params.batch_size)
    for number in numbers:
        yield embed_shard(passages, encoder, embedder, params, folder, number, cache, on_batch)


def choose_embedder(
    encoder: Encoder, manifest: Mapping[str, Any], served: ServedEncoder | None
) -> Encoder | ServedEncoder:
    """Return what computes vectors in the manifest's dtype: the encoder, its bfloat16 form, or the server.

    An encoder without an inference form becomes bfloat16 in place: a second copy of 4 billion weights would fill a
    24 GB GPU.
    """
    if served or manifest["dtype"] != "bfloat16":
        return served or encoder
    if is_bert(encoder):
        return for_inference(encoder, torch.bfloat16)
    encoder.model.bfloat16()
    return encoder


def embed_shard(
    passages: Passages,
    encoder: Encoder,
    embedder: Encoder | ServedEncoder,
    params: EmbedParams,
    folder: Path,
    number: int,
    cache: EmbeddingCache | None = None,
    on_batch: Callable[[int], object] = lambda _: None,
) -> dict[str, Any]:
    """Embed shard ``number`` into ``folder``; repeated calls give the same bytes.

    A text that occurs twice in the shard is encoded once, a cached one not at all.

    Args:
        passages: the corpus; row ``number * shard_size`` is the shard's first.
        encoder: provides prompt and limit.
        embedder: computes the vectors; see :func:`choose_embedder`.
        params: shard and batch size.
        folder: where the files are written atomically.
        number: the shard's number, from 0.
        cache: vectors of known texts.
        on_batch: called with the number of passages just done.

    Returns:
        The shard's manifest entry: file, rows, sha256, truncated, texts; and how many passages were ``embedded``.
    """
    start = number * params.shard_size
    texts = passages.contents(start, min(start + params.shard_size, len(passages)))
    hashes_R2 = text_hashes(texts)
    places = cache.rows(hashes_R2) if cache else np.full(len(texts), -1)
    new, old = np.flatnonzero(places < 0), np.flatnonzero(places >= 0)
    distinct = {text: row for row, text in enumerate(dict.fromkeys(texts[row] for row in new))}
    counts_U = encoder.token_counts(list(distinct), prompt=encoder.passage_prompt)
    vectors_UD = embed_passages(list(distinct), encoder, embedder, params.batch_size, counts_U, on_batch=on_batch)
    if not np.isfinite(vectors_UD).all():
        raise ModelError(
            f"{encoder.name} gives vectors that are no numbers, from passage {start} on; set embed.dtype: float32, or "
            "encoder.model to another one"
        )
    on_batch(len(texts) - len(distinct))
    vectors_RD, counts = np.empty((len(texts), encoder.width), np.float32), np.empty(len(texts), np.uint64)
    places_R = [distinct[texts[row]] for row in new]
    vectors_RD[new], counts[new] = vectors_UD[places_R], counts_U[places_R]
    if cache and len(old):
        vectors_RD[old], counts[old] = cache.take(places[old]), cache.tokens(places[old])
    return {
        **_save_array(folder / _shard_name(number), vectors_RD),
        "truncated": int((counts > encoder.max_tokens).sum()),
        "texts": _save_array(folder / _shard_name(number, "texts"), np.column_stack([hashes_R2, counts])),
        "embedded": len(new),
    }


def _save_array(path: Path, vectors: NDArray[Any]) -> dict[str, Any]:
    with appears_whole(path) as temporary, temporary.open("wb") as handle:
        np.save(handle, np.ascontiguousarray(vectors), allow_pickle=False)
    return {"file": path.name, "rows": len(vectors), "sha256": sha256(path)}


def _shard_name(number: int, what: str = "vectors") -> str:
    return f"{what}-{number:05d}.npy"


def _header(passages: Passages, encoder: Encoder, dtype: str) -> dict[str, Any]:
    """Return a manifest without shards."""
    parts = {"encoder": encoder.identity, "dtype": dtype, "corpus": passages.identity}
    return {
        "identity": fingerprint(parts),
        **parts,
        "model": encoder.name,
        "max_tokens": encoder.max_tokens,
        "rows": len(passages),
        "width": encoder.width,
        "shards": [],
    }


def _take_back(out: Path, folder: Path, header: Mapping[str, Any], shard_size: int) -> None:
    """Turn vectors that a killed call of the same plan has just published back into unfinished work."""
    if folder.exists() or not folder.with_suffix(".published").exists():
        return
    with suppress(DamagedFile):
        manifest = read_manifest(out, "", keys=MANIFEST_KEYS)
        first = min(shard_size, header["rows"])
        if manifest["identity"] == header["identity"] and manifest["shards"][0]["rows"] == first:
            reopen_work(out, folder)


def _resume(folder: Path, shard_size: int) -> dict[str, Any] | None:
    """Return the manifest of interrupted work; None if there is none."""
    if not (folder / "manifest.json").exists():
        return None
    manifest = read_state(folder / "manifest.json", f"delete {folder}", shards=list, rows=int)
    shards, done = -(-manifest["rows"] // shard_size), len(manifest["shards"])
    tqdm.write(f"resuming embed at shard {done}/{shards} ({100 * done / max(shards, 1):.1f} %)")
    return manifest


def _figures(manifest: dict[str, Any], *, embedded: int, reused: int, seconds: float) -> dict[str, float]:
    truncated = sum(shard["truncated"] for shard in manifest["shards"])
    return {
        "passages": manifest["rows"],
        "width": manifest["width"],
        "truncated": truncated,
        "truncated_share": truncated / max(manifest["rows"], 1),
        "bfloat16": float(manifest["dtype"] == "bfloat16"),
        "embedded": embedded,
        "reused": reused,
        "seconds": seconds,
        "texts_per_second": embedded / seconds,
    }
