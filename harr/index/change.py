"""A collection is brought to a corpus that changed: what is new is inserted, what is gone is deleted, where it lies.

That is done on a server where the collection has an alias (``index.alias``), and in Milvus Lite without full text, in a
copy of the folder. Lite counts the words of BM25 in each of its segments apart, so that a change would rank otherwise
than a new collection; and without an alias each corpus on a server has a collection of its own, which stays as it is.
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
from harr.index.collection import WRITE_SECONDS, Built, Keys, Slice, content_of, count, keys_there, properties
from harr.index.passage_index import MANIFEST
from harr.io.files import read_manifest
from harr.io.progress import bar, stoppable
from harr.params.index import IndexParams
from harr.services.milvus_client import REBUILD, Connection

MOST_CHANGED = 0.5
"""Share of its passages above which a collection is built anew; in Milvus Lite what was deleted lies there as holes."""
ALIKE = ("alias", "dtype", "encoder", "format", "full_text", "kind", "source", "stemmer")
"""What a change leaves as it is of the content of a collection."""


@dataclass(frozen=True, slots=True)
class Before:
    """The index in place, where its collections may be brought to another corpus."""

    folder: Path
    manifest: dict[str, Any]

    @classmethod
    def find(cls, out: Path, params: IndexParams, parts: Mapping[str, Slice]) -> "Before | None":
        """Return the index in ``out``; None where a new one is built: another encoder, kind or source, no alias, or
        too much of it changed."""
        try:
            manifest = read_manifest(out, REBUILD, keys={**MANIFEST, "format": int, "deleted": int})
        except DamagedFile:
            return None
        found, whole = cls(out, manifest), parts[""]
        sources = {"", *manifest.get("sources", {})}
        if not in_place(params) or not alike(manifest, whole) or sources != parts.keys():
            return None
        new = (~np.isin(whole.keys, found.keys(whole).keys)).sum()
        holes = found.deleted(whole) if params.uri else found.holes(whole)
        return found if new + holes <= MOST_CHANGED * len(whole.rows) else None

    def collection(self, source: str) -> str:
        """Return the name of the collection of a source, or of the whole."""
        told = self.manifest["sources"][source] if source else self.manifest
        return str(told["collection"])

    def keys(self, part: Slice) -> Keys:
        """Return the keys of a part."""
        return Keys.open(self.folder / part.file)

    def deleted(self, whole: Slice) -> int:
        """Return how many passages are gone."""
        return int((~np.isin(self.keys(whole).keys, whole.keys)).sum())

    def holes(self, whole: Slice) -> int:
        """Return how many passages were deleted since the collection was built."""
        return int(self.manifest["deleted"]) + self.deleted(whole)


def in_place(params: IndexParams) -> bool:
    """Return whether collections are changed where they lie, not built anew."""
    return bool(params.alias) if params.uri else not params.full_text


def alike(content: Mapping[str, Any], part: Slice) -> bool:
    """Return whether a collection differs from a part in its passages only."""
    return "encoder" in content and all(content.get(name) == part.content.get(name) for name in ALIKE)


def copy(out: Path, folder: Path) -> None:
    """Copy the index in place to ``folder``, whole or not at all: who searches it is not disturbed."""
    draft = folder.with_name(f".{folder.name}.tmp")
    shutil.rmtree(draft, ignore_errors=True)
    shutil.copytree(out, draft, symlinks=True)
    draft.replace(folder)


def change(
    client: Connection,
    part: Slice,
    before: Before | None,
    records: Callable[[NDArray[np.int64]], list[dict[str, Any]]],
    size: int,
) -> Built:
    """Insert what a collection lacks of its part, then delete what is gone.

    Who searches it meanwhile finds a passage as it was or as it is now, and one that was removed, or not. Its property
    names no identity until the count is right, so that nobody opens what a killed change left; that change is repeated,
    from the keys that are there.

    Args:
        client: connection to Milvus.
        part: what the collection will hold.
        before: what it held, where that is known.
        records: what is inserted of the passages at these places of the part.
        size: number of passages that are sent at once.

    Raises:
        IndexMismatch: the count is wrong at the end.
    """
    name, there = part.collection, content_of(client, part.collection)
    if before and there.get("identity") == before.manifest["identity"]:
        keys = before.keys(part).keys
    else:
        keys = keys_there(client, name, len(part.rows))
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
    if (found := count(client, name, len(part.rows))) != len(part.rows):
        raise IndexMismatch(f"{name} holds {found} of {len(part.rows)} passages after a change; run `{REBUILD}`")
    client.alter_collection_properties(name, properties(part.content))
    return Built(found, len(new), len(gone))


def check_alias(client: Connection, alias: str) -> None:
    """Refuse a name that is no alias, or that of another's collection.

    Raises:
        ParamsError: it is a collection, or names one that harr did not make.
    """
    if client.has_collection(alias):
        named = client.describe_collection(alias)["collection_name"]
        if named == alias or not content_of(client, alias):
            what = "a collection" if named == alias else f"an alias of {named}, which harr did not make"
            raise ParamsError(f"index.alias: {alias} is {what} at {client.where}; choose another name")


def point(client: Connection, alias: str, collection: str) -> None:
    """Let an alias name a collection from now on; a line says which one it named before."""
    if not client.has_collection(alias):
        client.create_alias(collection, alias)
        return
    named = client.describe_collection(alias)["collection_name"]
    if named != collection:
        client.alter_alias(collection, alias)
        tqdm.write(f"alias {alias} names {collection} now; drop {named} when nobody searches it any more")
