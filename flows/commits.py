"""Commits that carry a project to an agent and its answer back, on their own refs: no branch of the user moves."""

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from flows.workspace import CODE
from harr.errors import HarrError, ParamsError, bare
from harr.io.files import appears_whole

REMOTE = "origin"
AUTHOR = {
    f"GIT_{role}_{key}": value
    for role in ("AUTHOR", "COMMITTER")
    for key, value in (("NAME", "harr"), ("EMAIL", "harr@localhost"))
}


def repository() -> str:
    """Return the address, without a password, of the git remote that the pipeline and its agents share.

    Raises:
        ParamsError: there is none, or the project is a folder of a larger repository.
    """
    try:
        address = _git("remote", "get-url", REMOTE).decode().strip()
        prefix = _git("rev-parse", "--show-prefix").decode().strip()
    except HarrError as error:
        raise ParamsError(f"an agent takes the code from git: {error}; git remote add {REMOTE} URL") from None
    if prefix:
        raise ParamsError(f"an agent looks for the project at the top of its repository, but it is in {prefix}")
    return bare(address) if address.startswith("http") else address


def send_commit(place: Path, ref: str, more: Iterable[Path]) -> str:
    """Commit the tracked files as they are now, even if changed, push them as a ref, and return the commit.

    New files that git does not track stay behind, with a warning.

    Args:
        place: the project's folder, or a recipe's, from which code is taken.
        ref: the full name, `refs/harr/...`.
        more: further files of ``place``, tracked or not; one that does not exist is left out.
    """
    if new := _git("ls-files", "--others", "--exclude-standard", "--", "*.py").decode().splitlines():
        print(f"warning: files that git does not track are not sent: {', '.join(new)}; `git add` what a stage needs")
    code = [name for name in CODE if (place / name).exists()]
    paths = [str(path) for path in more if (place / path).exists()]
    with tempfile.TemporaryDirectory() as folder:
        index = {"GIT_INDEX_FILE": f"{folder}/index", **AUTHOR}
        _git("read-tree", "HEAD", variables=index)
        _git("add", "--update", variables=index)
        from_place = {**index, "GIT_DIR": str(_git_folder()), "GIT_WORK_TREE": str(place.resolve())}
        _git("add", "--update", "--", *code, cwd=place, variables=from_place)
        if paths:
            _git("add", "--force", "--", *paths, cwd=place, variables=from_place)
        tree = _git("write-tree", variables=index).decode().strip()
        commit = _git("commit-tree", tree, "-p", "HEAD", "-m", f"harr: {ref}", variables=index).decode().strip()
    _git("push", "--quiet", "--force", REMOTE, f"{commit}:{ref}")
    return commit


def receive_files(place: Path, ref: str, paths: Iterable[Path]) -> None:
    """Write files of a pushed commit into a folder."""
    _git("fetch", "--quiet", REMOTE, f"+{ref}:{ref}")
    for path in paths:
        with appears_whole(place / path) as temporary:
            temporary.write_bytes(_git("show", f"{ref}:{path.as_posix()}"))


def drop_commit(ref: str) -> None:
    """Delete a ref, here and in the remote; an unreachable remote keeps it, which only costs space."""
    for words in (("update-ref", "-d", ref), ("push", "--quiet", REMOTE, f":{ref}")):
        with contextlib.suppress(HarrError):
            _git(*words)


def _git_folder() -> Path:
    return Path(_git("rev-parse", "--absolute-git-dir").decode().strip())


def _git(*words: str, cwd: Path = Path(), variables: Mapping[str, str] | None = None) -> bytes:
    """Run git and return what it prints.

    Raises:
        HarrError: its last line.
    """
    environment = {**os.environ, "GIT_TERMINAL_PROMPT": "0", **(variables or {})}
    done = subprocess.run(["git", *words], cwd=cwd, env=environment, capture_output=True, check=False)
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        raise HarrError(f"git {words[0]}: {bare(lines[-1]) if lines else f'exit {done.returncode}'}")
    return done.stdout
