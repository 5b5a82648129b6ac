"""Follow what is served: a folder, or the version that a registry alias names, polled every two seconds."""

import os
import re
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from harr.errors import HarrError, IndexMismatch, ModelError, one_line
from harr.io.files import SUMS, sha256
from harr.services.model_registry import SCHEME, fetch, is_registered, open_registry, resolve

EVERY_SECONDS = 2.0


class Served(NamedTuple):
    """A served version: its number or name, and its files' hash, since a fresh registry reuses numbers."""

    name: str
    digest: str = ""


NONE = Served("")


class Follower:
    """A thread that polls which version a name means, and loads a new one once its files are checked.

    Args:
        model: ``models:/NAME@ALIAS``, ``models:/NAME/NUMBER``, or an output folder of stage merge.
        project: the folder of the project that has the registry.
        cache: where versions are downloaded to.
        load: takes a version's folder and its name.
        renewed: returns whether the current version must be loaded again because the corpus changed.
    """

    def __init__(
        self,
        model: str,
        project: Path,
        cache: Path,
        load: Callable[[Path, str], None],
        renewed: Callable[[], bool] = lambda: False,
    ) -> None:
        self.model, self._project, self._cache = model, project, cache
        self._load, self._renewed = load, renewed
        self.problem = ""
        """Why the last poll failed, in one line."""
        self.changes = 0
        """Number of versions loaded after the first one."""
        self._version, self._folder = NONE, Path()
        self._unfit = (NONE, "")
        """The version that does not fit here, and why: it is not loaded again at every poll."""
        self._client: Any = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="follow", daemon=True)

    def start(self) -> None:
        """Load the current version and begin polling.

        Raises:
            HarrError: there is no such model, or it cannot be loaded.
        """
        self._take(*self._look())
        self._thread.start()

    def close(self) -> None:
        """Stop polling."""
        self._ended.set()

    def _follow(self) -> None:
        while not self._ended.wait(EVERY_SECONDS):
            try:
                unfit_now = self._reload() if self._renewed() else None
                folder, version = self._look()
                if version == self._unfit[0]:
                    self.problem = self._unfit[1]
                    continue
                if version != self._version:
                    self._take(folder, version)
                    self.changes += 1
                elif unfit_now:
                    raise unfit_now
                self.problem, self._unfit = "", (NONE, "")
            except HarrError as error:
                self.problem = one_line(error, 300)
            except Exception as error:  # whatever a library raises, the old model stays in use
                self.problem = f"{type(error).__name__}: {one_line(error, 300)}"

    def _reload(self) -> HarrError | None:
        """Load the served version over a changed corpus; return why it does not fit, as another version may."""
        self._unfit = (NONE, "")
        try:
            self._load(self._folder, self._version.name)
        except HarrError as error:
            return error
        return None

    def _look(self) -> tuple[Path, Served]:
        """Return the folder and name of the current version; one that is here already is not fetched."""
        if not is_registered(self.model):
            folder = Path(self.model).expanduser()
            if not (folder / SUMS).exists():
                raise ModelError(f"{folder} is no folder of stage merge; name models/retriever, or run `dvc repro`")
            return folder, Served(sha256(folder / SUMS)[:12])
        if self._client is None:
            os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")  # this thread retries by itself
            os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
            self._client = open_registry(self._project)
        registered = resolve(self._client, self.model)
        version = Served(registered.number, registered.digest)
        if version == self._unfit[0] or (version == self._version and self._folder.is_dir()):
            return self._folder, version
        if registered.kind != "retriever":
            raise ModelError(f"{registered.uri} is of kind {registered.kind}; a server answers with a retriever")
        return fetch(self._client, registered, self._cache), version

    def _take(self, folder: Path, version: Served) -> None:
        """Load a version; one that does not fit here is not tried again."""
        try:
            self._load(folder, version.name)
        except (IndexMismatch, ModelError) as error:
            self._unfit = (version, one_line(error, 300))
            raise
        before, self._version, self._folder = self._folder, version, folder
        if is_registered(self.model) and before.name:
            self._prune({folder.name, before.name})

    def _prune(self, names: set[str]) -> None:
        """Remove downloaded versions of this model except those in ``names``."""
        name = self.model.removeprefix(SCHEME).partition("@")[0].partition("/")[0]
        downloaded = re.compile(rf"{re.escape(name)}-\d+-[0-9a-f]{{16}}")
        for folder in self._cache.iterdir():
            if downloaded.fullmatch(folder.name) and folder.name not in names:
                shutil.rmtree(folder, ignore_errors=True)
