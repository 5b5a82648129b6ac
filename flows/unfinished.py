"""Unfinished work of an agent's stage in DVC's remote: a lost agent leaves its checkpoints to the next one."""

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harr.io.folders import files_below
from tasks.paths import WORK

SECONDS = 5.0
"""How often new files are sent."""
FOLDER = "unfinished"


@contextlib.contextmanager
def unfinished_work(place: Path, stage: str, key: str) -> Iterator[None]:
    """Fetch a stage's unfinished work from the remote, send what is new during the block, and delete it at its end.

    After an error it stays for the next agent.

    Args:
        place: the project's folder.
        stage: its name in dvc.yaml.
        key: identifies the work; other parameters or code have another one.
    """
    from dvc.repo import Repo

    with Repo(str(place)) as repo:
        remote = repo.cloud.get_remote()
    mirror = Mirror(remote.fs, remote.fs.join(remote.path, FOLDER, key), place / WORK / stage)
    mirror.receive()
    done = threading.Event()
    thread = threading.Thread(target=mirror.send_until, args=(done,), daemon=True)
    thread.start()
    try:
        yield
    except BaseException:
        done.set()
        thread.join()
        raise
    done.set()
    thread.join()
    mirror.delete()


class Mirror:
    """A folder's copy in a remote; its files are complete, since a stage writes each file whole."""

    def __init__(self, fs: Any, address: str, folder: Path) -> None:
        self.fs, self.address, self.folder = fs, address, folder
        self._sent: dict[str, tuple[int, int]] = {}

    def receive(self) -> None:
        """Copy the remote's files into the folder."""
        names = [self.fs.relpath(path, self.address) for path in self.fs.find(self.address)] if self._exists() else []
        for name in names:
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            self.fs.get_file(self.fs.join(self.address, name), str(self.folder / name))
        self._sent = dict.fromkeys(names, (0, 0))
        if names:
            print(f"goes on with the unfinished work of another agent: {len(names)} files")

    def send_until(self, done: threading.Event) -> None:
        """Send what is new every few seconds, and a last time when ``done`` is set; the remote may be unreachable."""
        while not done.wait(SECONDS):
            self._send()
        self._send()

    def delete(self) -> None:
        """Delete the remote's files."""
        if self._exists():
            self.fs.rm(self.address, recursive=True)

    def _exists(self) -> bool:
        return bool(self.fs.exists(self.address))

    def _send(self) -> None:
        now = {}
        for path in files_below(self.folder) if self.folder.is_dir() else ():
            with contextlib.suppress(FileNotFoundError):  # the stage has just replaced it
                now[path.relative_to(self.folder).as_posix()] = (path.stat().st_size, path.stat().st_mtime_ns)
        try:
            for name in [name for name, mark in now.items() if mark != self._sent.get(name)]:
                with contextlib.suppress(FileNotFoundError):
                    self.fs.put_file(str(self.folder / name), self.fs.join(self.address, name))
                    self._sent[name] = now[name]
            for name in self._sent.keys() - now.keys():
                self.fs.rm_file(self.fs.join(self.address, name))
                del self._sent[name]
        except Exception as error:  # whatever DVC's remote raises: the work goes on here, and is sent next time
            print(f"warning: unfinished work was not sent to DVC's remote: {error}")
