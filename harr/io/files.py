"""Atomic writes (temporary name, fsync, rename), and hashes of every file in a published folder."""

import errno
import hashlib
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tqdm import tqdm

from harr.errors import DamagedFile

SUMS = "sha256sums.txt"
"""Name of the hash list in every published folder: one line per file, as `sha256sum -c` reads it."""
FRESH_SECONDS = 2.0
"""Time within which a file may change again without a new modification time."""
_LINE = re.compile(r"([0-9a-f]{64})  (\S[^\r\n]*)\n")


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_file(path: Path) -> None:
    """Flush a file that a library wrote to the disk."""
    with path.open("rb") as handle:
        os.fsync(handle.fileno())


@contextmanager
def appears_whole(path: Path) -> Iterator[Path]:
    """Yield a temporary name next to ``path``; on success sync it and rename it to ``path``.

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
    """Write a text file atomically."""
    with appears_whole(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file atomically, keys in the given order, with a trailing newline."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def read_json(path: Path) -> Any:
    """Read a JSON file."""
    return json.loads(path.read_text(encoding="utf-8"))


def read_jsonl(path: Path) -> list[Any]:
    """Read JSON Lines; only a line feed ends a line (``splitlines`` would also split at U+2028)."""
    with path.open(encoding="utf-8", newline="\n") as lines:
        return [json.loads(line) for line in lines]


def read_state(path: Path, remedy: str, **keys: type) -> dict[str, Any]:
    """Read a JSON object that harr wrote, and check that it has these ``keys`` with their types.

    Raises:
        DamagedFile: it is missing or damaged; says what is wrong and the ``remedy``.
    """
    try:
        text = path.read_bytes()
    except OSError as error:
        what = "is missing" if isinstance(error, FileNotFoundError) else f"cannot be read ({error.strerror})"
        raise DamagedFile(f"{path} {what}; {remedy}") from None
    return parse_state(text, str(path), remedy, keys)


def read_state_rows(path: Path, remedy: str, **keys: type) -> list[dict[str, Any]]:
    """Read JSON Lines as :func:`read_state` reads JSON; an error names the line."""
    if not path.exists():
        raise DamagedFile(f"{path} is missing; {remedy}")
    lines = path.read_bytes().removesuffix(b"\n").split(b"\n")
    return [parse_state(line, f"{path}:{number}", remedy, keys) for number, line in enumerate(lines, 1) if line]


def parse_state(text: bytes, place: str, remedy: str, keys: Mapping[str, type]) -> dict[str, Any]:
    """Parse a text as :func:`read_state` does a file; ``place`` names its origin.

    Raises:
        DamagedFile: it is damaged.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise DamagedFile(f"{place} is damaged (no JSON); {remedy}") from None
    if not isinstance(value, dict):
        raise DamagedFile(f"{place} is damaged (a {type(value).__name__}, expected an object); {remedy}")
    for key, kind in keys.items():
        if not isinstance(value.get(key), int | float if kind is float else kind):
            fault = f"is a {type(value[key]).__name__}" if key in value else "is missing"
            raise DamagedFile(f"{place} is damaged ({key} {fault}, expected {kind.__name__}); {remedy}")
    return value


def stamp(path: Path) -> list[int]:
    """Return what changes whenever a file changes: its size, modification time, change time (which nobody can set) and
    inode number."""
    stat = path.stat()
    return [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino]


def is_fresh(path: Path) -> bool:
    """Return whether a file changed so recently that it may change again without a new :func:`stamp`."""
    return time.time() - path.stat().st_mtime <= FRESH_SECONDS


def sha256(path: Path) -> str:
    """Return the hex digest of a file's bytes."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def digest_of(path: Path) -> str:
    """Return the hash of a file, or for a folder that of all its files' names and hashes."""
    if path.is_file():
        return sha256(path)
    whole = hashlib.sha256()
    for file in sorted(p for p in path.rglob("*") if p.is_file()):
        whole.update(f"{file.relative_to(path)} {sha256(file)}\n".encode())
    return whole.hexdigest()


def fingerprint(value: Any) -> str:
    """Return a short, stable hash of a JSON value, which names resumable work and index collections.

    >>> fingerprint({"b": 1, "a": 2}) == fingerprint({"a": 2, "b": 1})
    True
    """
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def publish(folder: Path, out: Path) -> None:
    """Write the hashes of a finished folder's files into it, and rename it to ``out``, replacing an older one.

    The old folder gets a hidden name and is deleted only once the new one is in place: after a kill in between, the
    next call completes the work. If ``out`` is a link, its target is replaced; if it is on another disk
    than ``folder``, a copy next to it is renamed.
    """
    _remove_stumps(folder)
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path != folder / SUMS)
    write_text(folder / SUMS, "".join(f"{sha256(path)}  {path.relative_to(folder).as_posix()}\n" for path in paths))
    _sync_all(folder)
    out = _resolve_link(out)
    if out.exists() and not out.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, "Not a directory", str(out))
    out.parent.mkdir(parents=True, exist_ok=True)
    old, copy = (out.with_name(f".{out.name}.{what}.tmp") for what in ("old", "new"))
    shutil.rmtree(copy, ignore_errors=True)
    try:
        folder.replace(out)
    except OSError as error:
        if error.errno not in (errno.EXDEV, errno.ENOTEMPTY, errno.EEXIST):
            raise
        _swap(_copy_folder(folder, copy) if error.errno == errno.EXDEV else folder, out, old)
    _sync_folder(out.parent)
    for past in (old, folder):
        shutil.rmtree(past, ignore_errors=True)


@contextmanager
def draft(folder: Path, out: Path) -> Iterator[Path]:
    """Yield ``folder``, empty; on success, publish it as ``out`` (:func:`publish`).

    >>> import tempfile
    >>> place = Path(tempfile.mkdtemp())
    >>> with draft(place / "work", place / "out") as folder:
    ...     write_text(folder / "a.txt", "all or nothing")
    >>> sorted(path.name for path in (place / "out").iterdir()), (place / "work").exists()
    (['a.txt', 'sha256sums.txt'], False)
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    yield folder
    publish(folder, out)


def _swap(new: Path, out: Path, old: Path) -> None:
    """Rename ``out`` to ``old`` and ``new`` to ``out``; if that fails, restore ``out``."""
    if out.exists():
        shutil.rmtree(old, ignore_errors=True)
        shutil.move(out, old)  # a folder from a container's image is copied
    try:
        new.replace(out)
    except OSError:
        if old.exists():
            old.replace(out)
        raise


def _copy_folder(folder: Path, copy: Path) -> Path:
    """Return a synced copy of a folder; if copying fails, nothing is left of it.

    Raises:
        OSError: the first error, with its number: shutil has only a list of texts.
    """
    shutil.rmtree(copy, ignore_errors=True)
    try:
        shutil.copytree(folder, copy, symlinks=True)
        _sync_all(copy)
    except OSError as error:
        shutil.rmtree(copy, ignore_errors=True)
        if isinstance(error, shutil.Error) and (match := re.search(r"\[Errno (\d+)\]", str(error))):
            raise OSError(int(match[1]), os.strerror(int(match[1])), str(copy)) from None
        raise
    return copy


def _remove_stumps(folder: Path) -> None:
    """Delete the temporary files that a killed call left in a folder."""
    for stump in sorted(folder.rglob(".*.tmp"), reverse=True):  # a folder's contents come before the folder
        if stump.is_dir() and not stump.is_symlink():
            shutil.rmtree(stump)
        else:
            stump.unlink()


def _sync_all(folder: Path) -> None:
    """Flush a folder and everything in it to the disk."""
    for path in [folder, *folder.rglob("*")]:
        if path.is_dir():
            _sync_folder(path)
        elif path.is_file():
            sync_file(path)


def _resolve_link(path: Path) -> Path:
    """Return where a link points; any other path unchanged."""
    return Path(os.path.realpath(path)) if path.is_symlink() else path


def reopen_work(out: Path, folder: Path) -> None:
    """Make a published folder unfinished work again, named ``folder``; copy it if that is on another disk."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        _resolve_link(out).replace(folder)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        _copy_folder(out, folder.with_name(f".{folder.name}.tmp")).replace(folder)


def note_published(run: Path) -> Path:
    """Note next to the unfinished work ``run`` that it is being published: a kill before the stage's end undoes it.

    Until :func:`finish`, the stage's next run continues from what was published, not from the start.
    """
    note = run.with_suffix(".published")
    write_text(note, "")
    return note


def reopen_published(run: Path, out: Path, folder: Path, manifest: Mapping[str, Any]) -> None:
    """Take back an intact ``out`` of this manifest as ``folder`` if ``run`` was killed after :func:`note_published`."""
    if run.with_suffix(".published").exists() and (out / "manifest.json").exists() and not folder.exists():
        with suppress(DamagedFile):
            if read_manifest(out, "") == manifest:
                reopen_work(out, folder)


def finish(work: Path) -> None:
    """Delete published work once the stage has reported it: it must not be reused by later code."""
    for note in work.glob("*.published"):
        shutil.rmtree(note.with_suffix(""), ignore_errors=True)
        note.unlink(missing_ok=True)


def check_sums(folder: Path, rebuild: str, *names: str) -> None:
    """Compare a folder's files, or only those of these ``names``, with the hashes that :func:`publish` noted.

    A folder within a published one is checked with the whole. A folder without hashes, made by hand or by another
    program, is accepted.

    Raises:
        DamagedFile: a file or the list of hashes is missing or changed; names it and the command ``rebuild``.
    """
    place = next((place for place in (folder, folder.parent) if (place / SUMS).exists()), None)
    if place is None:
        return
    # Not read_text, which also ends lines at carriage returns.
    text = (place / SUMS).read_bytes().decode(errors="replace")
    digests = {name: digest for digest, name in _LINE.findall(text)}
    whole = "".join(f"{digest}  {name}\n" for name, digest in digests.items()) == text
    emptied = not digests and len(list(place.iterdir())) > 1
    if not whole or emptied or not digests.keys() >= set(names):
        raise DamagedFile(f"{place / SUMS} is damaged; run `{rebuild}`")
    for name in names or digests:
        check_shard(place / name, {"sha256": digests[name]}, rebuild)


def newest_sound(folders: Sequence[Path]) -> Path | None:
    """Return the last of these published folders that is intact; print the names of damaged ones and remove them."""
    for folder in reversed(folders):
        try:
            check_sums(folder, "the same command again")
        except DamagedFile as error:
            tqdm.write(f"{str(error).partition(';')[0]}; going on from the checkpoint before", file=sys.stderr)
            shutil.rmtree(folder, ignore_errors=True)
        else:
            return folder
    return None


def read_manifest(
    folder: Path, rebuild: str, *, shards: bool = True, keys: Mapping[str, type] | None = None, once: bool = False
) -> dict[str, Any]:
    """Read ``folder``'s manifest.json, and compare all files, or without ``shards`` only it, with their hashes.

    The hashes are those of :func:`publish`; for unfinished work, which is not published yet, those in the manifest.
    The manifest must have an ``identity`` and these ``keys`` with their types. With ``once`` the files are not compared
    again until the :func:`stamp` of one changes; ``.<folder>.checked.json`` next to the folder notes the stamps.

    Raises:
        DamagedFile: the manifest or a shard is missing or changed; names it and the command ``rebuild``.
    """
    path, note = folder / "manifest.json", folder.with_name(f".{folder.name}.checked.json")
    files = sorted(file for file in folder.rglob("*") if file.is_file()) if once else []
    stamps = {file.relative_to(folder).as_posix(): stamp(file) for file in files}
    if once:
        with suppress(OSError, ValueError):
            shards = read_json(note) != stamps
    compares = shards
    if path.exists() and (folder / SUMS).exists():
        check_sums(folder, rebuild, *([] if shards else ["manifest.json"]))
        shards = False
    manifest = read_state(path, f"run `{rebuild}`", **{"identity": str, **(keys or {})})
    for shard in manifest.get("shards", ()) if shards else ():
        if not (isinstance(shard, dict) and isinstance(shard.get("file"), str) and "sha256" in shard):
            raise DamagedFile(f"{path} is damaged (a shard without file or sha256); run `{rebuild}`")
        check_shard(folder / shard["file"], shard, rebuild)
    if once and compares and not any(is_fresh(file) for file in files):
        with suppress(OSError):  # a read-only disk
            write_json(note, stamps)
    return manifest


def check_shard(path: Path, shard: Mapping[str, Any], rebuild: str) -> None:
    """Compare a file with its noted ``sha256``.

    Raises:
        DamagedFile: it is missing or changed; names the file and the command ``rebuild``.
    """
    if not path.exists():
        raise DamagedFile(f"{path} is missing; run `{rebuild}`")
    if sha256(path) != shard["sha256"]:
        raise DamagedFile(f"{path} is damaged (sha256 differs from the one noted); run `{rebuild}`")
