"""Passages to vectors, shard by shard: resumable, bounded in memory by one shard.

A shard is a pure function of corpus, encoder, dtype and number (:func:`embed_shard`). A text that the vectors in place hold
already, of the corpus before, is not embedded again (harr/embed/embedding_cache.py); the bytes are the same.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm import tqdm

from harr.corpus.passages import Passages
from harr.embed.embedding_cache import Known, checked, encoded, text_hashes
from harr.embed.encoder import Encoder
from harr.embed.inference import for_inference, is_bert
from harr.embed.served import ServedEncoder
from harr.errors import DamagedFile
from harr.io.files import (
    SUMS,
    appears_whole,
    check_sums,
    fingerprint,
    note_published,
    publish,
    read_json,
    reopen_work,
    sha256,
    write_json,
)
from harr.io.progress import bar, stoppable
from harr.io.resume import open_work
from harr.params.embed import EmbedParams

MIN_COSINE = 0.99
PROBE_SECONDS = 1.0
CHECKED = 8
"""Number of passages that are also encoded in this process before a server encodes the corpus."""


def embed_corpus(
    passages: Passages,
    encoder: Encoder,
    params: EmbedParams,
    out: Path,
    work: Path,
    served: ServedEncoder | None = None,
) -> dict[str, float]:
    """Embed every passage and publish ``out``: vectors-00000.npy ... and manifest.json.

    A shard is a float32 array of unit vectors, rows in corpus order. Beside it texts-00000.npy says what each text was:
    the first half of its SHA-256, in two numbers, and its tokens, uint64, (rows, 3). Where ``out`` holds vectors of
    another corpus, those of equal texts are taken over. Unfinished shards live in ``work/<fingerprint>`` and are taken up by
    the next call with the same corpus, encoder, dtype and shard size; a shard there whose hash differs is made again, alone; so is one of a damaged ``out``.
    ``served`` computes in place of ``encoder``, after they agreed on the first passages. The weights of ``encoder``
    may be in bfloat16 afterwards (:func:`computing`).

    Returns:
        Figures for the metrics file; ``embedded``, ``reused``, ``seconds`` and ``texts_per_second`` are of this call.
    """
    if served:
        served.check(passages.contents(0, min(CHECKED, len(passages))))
    dtype = "served" if served else params.dtype
    plan = {
        "corpus": passages.identity,
        "encoder": encoder.identity,
        "dtype": dtype,
        "shard_size": params.shard_size,
    }
    _take_back(out, work / fingerprint(plan), passages, encoder, plan)
    folder = open_work(work, plan)
    manifest = _resume(folder, passages, encoder, params) or _begun(out, passages, encoder, params, dtype)
    (folder / SUMS).unlink(missing_ok=True)  # of a call that was killed as it published
    write_json(folder / "manifest.json", manifest)
    done = {shard["file"]: shard for shard in manifest["shards"]}
    missing = [number for number in range(-(-len(passages) // params.shard_size)) if _file(number) not in done]
    finished_rows = sum(shard["rows"] for shard in manifest["shards"])
    started, embedded = time.monotonic(), 0
    with bar(total=len(passages), initial=finished_rows, desc="embed", unit="passage") as progress:
        entries = _made(passages, encoder, served, params, out, folder, manifest, missing, progress.update)
        for entry in stoppable(entries):
            embedded += entry.pop("embedded")
            done[entry["file"]] = entry
            manifest["shards"] = [done[name] for name in sorted(done, key=lambda name: (len(name), name))]
            write_json(folder / "manifest.json", manifest)
    note_published(folder)
    publish(folder, out)
    reused = len(passages) - finished_rows - embedded
    return _figures(manifest, embedded=embedded, reused=reused, seconds=time.monotonic() - started)


def _begun(out: Path, passages: Passages, encoder: Encoder, params: EmbedParams, dtype: str) -> dict[str, Any]:
    """Return the manifest of work that begins; it fixes the dtype, so that a resumed run keeps it."""
    if dtype == "auto":
        dtype = _dtype_before(out, passages, encoder) or _choose_dtype(passages, encoder, params.batch_size)
    return _header(passages, encoder, dtype)


def _made(
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
    """Make these shards, and yield the entry of each; what ``out`` holds is taken over."""
    if not numbers:
        return
    used = computing(encoder, manifest, served)
    known = checked(Known.open(out, manifest), passages, encoder, used, params.batch_size)
    for number in numbers:
        yield embed_shard(passages, encoder, used, params, folder, number, known, on_batch)


def computing(encoder: Encoder, manifest: Mapping[str, Any], served: ServedEncoder | None) -> Encoder | ServedEncoder:
    """Return what computes vectors as the manifest says: the encoder, what stands for it in bfloat16, or the server.

    The weights of ``encoder`` become bfloat16 in place, where no other model stands for it: of 4 billion weights a copy
    beside those in float32 would fill a GPU of 24 GB.
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
    used: Encoder | ServedEncoder,
    params: EmbedParams,
    folder: Path,
    number: int,
    known: Known | None = None,
    on_batch: Callable[[int], object] = lambda _: None,
) -> dict[str, Any]:
    """Embed shard ``number`` into ``folder``; the same bytes whenever it runs.

    A text that comes twice in the shard is encoded once, one that is known not at all.

    Args:
        passages: the corpus; row ``number * shard_size`` is the shard's first.
        encoder: its prompt and limit are used.
        used: computes the vectors; see :func:`computing`.
        params: shard and batch size.
        folder: where the file appears, whole.
        number: of the shard, from 0.
        known: texts that have vectors.
        on_batch: told how many passages were just done.

    Returns:
        The shard's entry in the manifest: file, rows, sha256, truncated; and how many passages were ``embedded``.
    """
    start = number * params.shard_size
    texts = passages.contents(start, min(start + params.shard_size, len(passages)))
    hashes_R2 = text_hashes(texts)
    places = known.rows(hashes_R2) if known else np.full(len(texts), -1)
    new, old = np.flatnonzero(places < 0), np.flatnonzero(places >= 0)
    distinct = {text: row for row, text in enumerate(dict.fromkeys(texts[row] for row in new))}
    vectors_UD = encoded(list(distinct), encoder, used, params.batch_size, on_batch=on_batch)
    on_batch(len(texts) - len(distinct))
    vectors_RD, counts = np.empty((len(texts), encoder.width), np.float32), np.empty(len(texts), np.uint64)
    vectors_RD[new] = vectors_UD[[distinct[texts[row]] for row in new]]
    counts[new] = encoder.token_counts([texts[row] for row in new], prompt=encoder.passage_prompt)
    if known and len(old):
        vectors_RD[old], counts[old] = known.take(places[old]), known.tokens(places[old])
    return {
        **_saved(folder / _file(number), vectors_RD),
        "truncated": int((counts > encoder.max_tokens).sum()),
        "texts": _saved(folder / _file(number, "texts"), np.column_stack([hashes_R2, counts])),
        "embedded": len(new),
    }


def _saved(path: Path, vectors: NDArray[Any]) -> dict[str, Any]:
    with appears_whole(path) as temporary, temporary.open("wb") as handle:
        np.save(handle, np.ascontiguousarray(vectors), allow_pickle=False)
    return {"file": path.name, "rows": len(vectors), "sha256": sha256(path)}


def _file(number: int, what: str = "vectors") -> str:
    return f"{what}-{number:05d}.npy"


def _header(passages: Passages, encoder: Encoder, dtype: str) -> dict[str, Any]:
    """Return the manifest of no shards."""
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


def _take_back(out: Path, folder: Path, passages: Passages, encoder: Encoder, plan: Mapping[str, Any]) -> None:
    """Published vectors of this plan that are damaged become unfinished work, so that only that part is made again.

    So do those of a stage that was killed after it published them. Others are left where they are: whoever runs the
    stage again then wants all of it anew.
    """
    manifest = None if folder.exists() else _unfinished(out, passages, encoder)
    first = min(plan["shard_size"], len(passages))
    if manifest and plan["dtype"] in ("auto", manifest["dtype"]) and manifest["shards"][0].get("rows") == first:
        try:
            check_sums(out, "")
            wanted = folder.with_suffix(".published").exists()
        except DamagedFile:
            wanted = True
        if wanted:
            reopen_work(out, folder)


def _unfinished(folder: Path, passages: Passages, encoder: Encoder) -> dict[str, Any] | None:
    """Return the manifest in a folder; None where there is none, or none of this corpus and encoder."""
    try:
        manifest: dict[str, Any] = read_json(folder / "manifest.json")
        header = _header(passages, encoder, manifest["dtype"])
        return manifest if {**manifest, "shards": []} == header and isinstance(manifest["shards"], list) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _resume(folder: Path, passages: Passages, encoder: Encoder, params: EmbedParams) -> dict[str, Any] | None:
    """Return the manifest of interrupted work, reduced to the shards that are intact; None if there is none."""
    manifest = _unfinished(folder, passages, encoder)
    if manifest is None:
        if (folder / "manifest.json").exists():
            tqdm.write(f"{folder / 'manifest.json'} is damaged; embedding begins anew")
        return None
    intact = []
    for shard in manifest["shards"]:
        damaged = [
            path
            for part in (shard, shard.get("texts", {}))
            if not _is_whole(path := folder / str(part.get("file")), part)
        ]
        if damaged:
            tqdm.write(f"{damaged[0]} is missing or damaged and will be made again")
        else:
            intact.append(shard)
    manifest["shards"] = intact
    shards = -(-manifest["rows"] // params.shard_size)
    share = len(intact) / max(shards, 1)
    tqdm.write(f"resuming embed at shard {len(intact)}/{shards} ({share:.1%})".replace("%", " %"))
    return manifest


def _is_whole(path: Path, part: Mapping[str, Any]) -> bool:
    """Return whether a file is there, as its entry in the manifest tells."""
    return path.is_file() and sha256(path) == part.get("sha256")


def _dtype_before(out: Path, passages: Passages, encoder: Encoder) -> str:
    """Return the number format in which this encoder embedded the corpus before; "" where it did not."""
    try:
        made = read_json(out / "manifest.json")
        ours = made["encoder"] == encoder.identity and made["corpus"] != passages.identity
        return str(made["dtype"]) if ours and made["dtype"] in ("float32", "bfloat16") else ""
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _choose_dtype(passages: Passages, encoder: Encoder, batch_size: int) -> str:
    """Try both types on passages from all over the corpus: bfloat16 must be faster and agree."""
    rows = np.unique(np.linspace(0, len(passages) - 1, batch_size).astype(np.int64))
    texts = [passage.content for passage in passages.take(rows.tolist())]
    half = for_inference(encoder, torch.bfloat16)
    seconds = {"float32": float("inf"), "bfloat16": float("inf")}
    vectors: dict[str, NDArray[np.float32]] = {}
    begun = time.monotonic()
    rounds = 0
    # The first round warms up: kernels are chosen for the shapes, and it is not counted.
    while rounds < 2 or time.monotonic() - begun < PROBE_SECONDS:
        for dtype, candidate in (("float32", encoder), ("bfloat16", half)):
            start = time.monotonic()
            vectors[dtype] = candidate.encode(texts, prompt=encoder.passage_prompt, batch_size=batch_size)
            if rounds:
                seconds[dtype] = min(seconds[dtype], time.monotonic() - start)
        rounds += 1
    cosine = float((vectors["float32"] * vectors["bfloat16"]).sum(-1).min())
    chosen = "bfloat16" if seconds["bfloat16"] < seconds["float32"] and cosine > MIN_COSINE else "float32"
    ratio = seconds["float32"] / seconds["bfloat16"]
    tqdm.write(f"embedding in {chosen}: bfloat16 is {ratio:.1f} times as fast, cosine at least {cosine:.5f}")
    return chosen


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
