"""Files that appear whole: temporary name, fsync, rename; and manifests with a hash per shard."""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harr.errors import DamagedFile


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_file(path: Path) -> None:
    """Push the bytes of a file that a library wrote to the disk."""
    with path.open("rb") as handle:
        os.fsync(handle.fileno())


@contextmanager
def appears_whole(path: Path) -> Iterator[Path]:
    """Yield a temporary name beside ``path``; on success sync it and rename it to ``path``.

    >>> import tempfile
    >>> target = Path(tempfile.mkdtemp()) / "a.txt"
    >>> with appears_whole(target) as temporary:
    ...     _ = temporary.write_text("all or nothing")
    >>> target.read_text()
    'all or nothing'
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        yield temporary
        sync_file(temporary)
        temporary.replace(path)
        _sync_folder(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a whole text file."""
    with appears_whole(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Write a whole JSON file, keys in the order given, one trailing newline."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def read_json(path: Path) -> Any:
    """Read a JSON file."""
    return json.loads(path.read_text(encoding="utf-8"))


def read_jsonl(path: Path) -> list[Any]:
    """Read JSON lines; only a line feed ends one (``splitlines`` would also split at U+2028)."""
    with path.open(encoding="utf-8", newline="\n") as lines:
        return [json.loads(line) for line in lines]


def sha256(path: Path) -> str:
    """Hex digest of a file's bytes."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def fingerprint(value: Any) -> str:
    """Short stable hash of a JSON-able value: names resumable work and index collections.

    >>> fingerprint({"b": 1, "a": 2}) == fingerprint({"a": 2, "b": 1})
    True
    """
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def publish(folder: Path, out: Path) -> None:
    """Rename a finished folder to ``out``, replacing what was there."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            sync_file(path)
    out.parent.mkdir(parents=True, exist_ok=True)
    if out.exists():
        shutil.rmtree(out)
    folder.replace(out)
    _sync_folder(out.parent)


def read_manifest(folder: Path, rebuild: str, *, shards: bool = True) -> dict[str, Any]:
    """Read ``folder``'s manifest.json, and compare the ``shards`` it lists with their hashes.

    Raises:
        DamagedFile: the manifest or a shard is missing or changed; names it and the command ``rebuild``.
    """
    try:
        manifest: dict[str, Any] = read_json(folder / "manifest.json")
    except (OSError, ValueError):
        raise DamagedFile(f"{folder / 'manifest.json'} is missing or damaged; run `{rebuild}`") from None
    for shard in manifest.get("shards", ()) if shards else ():
        check_shard(folder / shard["file"], shard, rebuild)
    return manifest


def check_shard(path: Path, shard: Mapping[str, Any], rebuild: str) -> None:
    """Compare a shard with its manifest entry ``{file, sha256}``.

    Raises:
        DamagedFile: missing or changed; the message names the shard and the command ``rebuild``.
    """
    if not path.exists():
        raise DamagedFile(f"{path} is missing; run `{rebuild}`")
    if sha256(path) != shard["sha256"]:
        raise DamagedFile(f"{path} is damaged (sha256 differs from its manifest); run `{rebuild}`")
