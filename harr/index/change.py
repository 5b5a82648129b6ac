"""Update a collection to a changed corpus: insert new passages and delete removed ones, in place.

This works on a server with ``index.alias``, and in Milvus Lite without full text, in a copy of the folder. Lite counts
the words of BM25 per segment, so an updated collection would rank differently from a new one; and without an alias
each corpus on a server has a collection of its own, which stays as it is.
"""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from harr.errors import DamagedFile, IndexMismatch, ParamsError
from harr.index.collection import WRITE_SECONDS, Built, Keys, Slice, content_of, count, properties, read_keys
from harr.index.passage_index import MANIFEST
from harr.io.files import read_manifest
from harr.io.progress import bar, stoppable
from harr.params.index import IndexParams
from harr.services.milvus_client import REBUILD, Connection

MOST_CHANGED = 0.5
"""Share of changed passages above which a collection is rebuilt; in Milvus Lite deleted rows stay as holes."""
ALIKE = ("alias", "dtype", "encoder", "format", "full_text", "kind", "source", "stemmer")
"""Entries of a collection's content that an update does not change."""


@dataclass(frozen=True, slots=True)
class Before:
    """The published index whose collections may be updated to another corpus."""

    folder: Path
    manifest: dict[str, Any]

    @classmethod
    def find(cls, out: Path, params: IndexParams, parts: Mapping[str, Slice]) -> "Before | None":
        """Return the index in ``out``; None if a new one is needed: another encoder, kind or source, no alias, or too
        many changes."""
        try:
            manifest = read_manifest(out, REBUILD, keys={**MANIFEST, "format": int, "deleted": int})
        except DamagedFile:
            return None
        before, whole = cls(out, manifest), parts[""]
        sources = {"", *manifest.get("sources", {})}
        if not updates_in_place(params) or not is_same_form(manifest, whole) or sources != parts.keys():
            return None
        new = (~np.isin(whole.keys, before.keys(whole).keys)).sum()
        holes = before.deleted(whole) if params.uri else before.holes(whole)
        return before if new + holes <= MOST_CHANGED * len(whole.rows) else None

    def collection(self, source: str) -> str:
        """Return the name of the collection of a source, or of the whole."""
        entry = self.manifest["sources"][source] if source else self.manifest
        return str(entry["collection"])

    def keys(self, part: Slice) -> Keys:
        """Return the keys of a part."""
        return Keys.open(self.folder / part.file)

    def deleted(self, whole: Slice) -> int:
        """Return the number of removed passages."""
        return int((~np.isin(self.keys(whole).keys, whole.keys)).sum())

    def holes(self, whole: Slice) -> int:
        """Return the number of passages deleted since the collection was built."""
        return int(self.manifest["deleted"]) + self.deleted(whole)


def updates_in_place(params: IndexParams) -> bool:
    """Return whether collections are updated in place instead of rebuilt."""
    return bool(params.alias) if params.uri else not params.full_text


def is_same_form(content: Mapping[str, Any], part: Slice) -> bool:
    """Return whether a collection differs from a slice in its passages only."""
    return "encoder" in content and all(content.get(name) == part.content.get(name) for name in ALIKE)


def copy_index(out: Path, folder: Path) -> None:
    """Copy the published index to ``folder``, atomically, without disturbing searches; the copy may be written."""
    draft = folder.with_name(f".{folder.name}.tmp")
    shutil.rmtree(draft, ignore_errors=True)
    shutil.copytree(out, draft, copy_function=shutil.copyfile)
    draft.replace(folder)


def update(
    client: Connection,
    part: Slice,
    before: Before | None,
    records: Callable[[NDArray[np.int64]], list[dict[str, Any]]],
    size: int,
) -> Built:
    """Insert the passages that a collection lacks, then delete the removed ones.

    A search meanwhile finds the old or the new form of a passage, and may find a removed one. The collection's property
    names no identity until the count is right, so that nobody opens the result of a killed update; that update is
    repeated from the keys in the collection.

    Args:
        client: connection to Milvus.
        part: the slice that the collection will hold.
        before: the published index, if any.
        records: returns the records of the passages at these places of the slice.
        size: number of passages per request.

    Raises:
        IndexMismatch: the count is wrong at the end.
    """
    name, content = part.collection, content_of(client, part.collection)
    if before and content.get("identity") == before.manifest["identity"]:
        keys = before.keys(part).keys
    else:
        keys = read_keys(client, name, len(part.rows))
    new, gone = np.flatnonzero(~np.isin(part.keys, keys)), np.setdiff1d(keys, part.keys)
    marked = {**part.content, "identity": "", "becomes": part.content["identity"]}
    client.alter_collection_properties(name, properties(marked))
    with bar(total=len(new) + len(gone), desc=f"index {part.source}".strip(), unit="passage") as progress:
        for start in stoppable(range(0, len(new), size)):
            batch = new[start : start + size]
            client.upsert(name, records(batch), timeout=WRITE_SECONDS)
            progress.update(len(batch))
        for start in stoppable(range(0, len(gone), size)):
            ids = gone[start : start + size].tolist()
            client.delete(name, ids=ids, timeout=WRITE_SECONDS)
            progress.update(len(ids))
    client.flush(name, timeout=WRITE_SECONDS)
    if (rows := count(client, name, len(part.rows))) != len(part.rows):
        raise IndexMismatch(f"{name} holds {rows} of {len(part.rows)} passages after a change; run `{REBUILD}`")
    client.alter_collection_properties(name, properties(part.content))
    return Built(rows, len(new), len(gone))


def check_alias(client: Connection, alias: str) -> None:
    """Refuse an alias that is the name of a collection or points to somebody else's.

    Raises:
        ParamsError: it is a collection, or points to one that harr did not make.
    """
    if client.has_collection(alias):
        target = client.describe_collection(alias)["collection_name"]
        if target == alias or not content_of(client, alias):
            what = "a collection" if target == alias else f"an alias of {target}, which harr did not make"
            raise ParamsError(f"index.alias: {alias} is {what} at {client.where}; choose another name")


def set_alias(client: Connection, alias: str, collection: str) -> None:
    """Point an alias to a collection, and print the one that it pointed to before."""
    if not client.has_collection(alias):
        client.create_alias(collection, alias)
        return
    current = client.describe_collection(alias)["collection_name"]
    if current != collection:
        client.alter_alias(collection, alias)
        tqdm.write(f"alias {alias} names {collection} now; drop {current} when nobody searches it any more")
