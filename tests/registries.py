"""The part of MLflow's client that registration, gate and promotion use, in memory and a folder; it can be killed."""

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from harr.io.files import write_text


class Absent(Exception):
    """MLflow's error for a missing alias, version or model."""


class Killed(BaseException):
    """Raised where the process would end."""


def look_up(call: Any, *values: Any) -> Any:
    """Return the result of a call, or None."""
    try:
        return call(*values)
    except Absent:
        return None


def get(values: Any, key: str) -> Any:
    """Return a value of a dict; raise Absent if there is none."""
    if key not in (values or {}):
        raise Absent
    return values[key]


class Registry:
    """A registered model with its versions; ``left`` writes are possible before a kill."""

    def __init__(self, root: Path) -> None:
        self.root, self.left = root, -1
        self.tags: dict[str, str] | None = None
        self.aliases: dict[str, str] = {}
        self.versions: dict[str, Any] = {}
        self.runs = self.made = 0

    def write(self) -> None:
        """Count a write; a kill comes before it."""
        if self.left == 0:
            raise Killed
        self.left -= 1

    def run(self) -> str:
        self.runs += 1
        return f"run-{self.runs}"

    def get_registered_model(self, name: str) -> Any:
        if self.tags is None:
            raise Absent
        return SimpleNamespace(name=name, tags=self.tags, aliases=self.aliases)

    def create_registered_model(self, name: str, description: str = "") -> None:
        self.write()
        self.tags = self.tags or {}

    def get_model_version(self, name: str, number: str) -> Any:
        return get(self.versions, str(number))

    def get_model_version_by_alias(self, name: str, alias: str) -> Any:
        return self.versions[get(self.aliases, alias)]

    def search_model_versions(self, text: str) -> list[Any]:
        digest = text.rsplit("'", 2)[1]
        return [version for version in self.versions.values() if version.tags["model"] == digest]

    def create_model_version(self, name: str, source: str, run_id: str, tags: dict[str, str], **more: Any) -> Any:
        self.write()
        self.made += 1
        made = SimpleNamespace(name=name, version=str(self.made), run_id=run_id, tags=dict(tags))
        self.versions[made.version] = made
        return made

    def delete_version(self, number: str) -> None:
        """Delete a version, as a person may, together with its aliases."""
        del self.versions[number]
        self.aliases = {alias: own for alias, own in self.aliases.items() if own != number}

    def set_registered_model_alias(self, name: str, alias: str, number: str) -> None:
        self.write()
        self.aliases[alias] = str(number)

    def delete_registered_model_alias(self, name: str, alias: str) -> None:
        self.write()
        self.aliases.pop(alias, None)

    def set_registered_model_tag(self, name: str, key: str, value: str) -> None:
        self.write()
        self.get_registered_model(name).tags[key] = value

    def delete_registered_model_tag(self, name: str, key: str) -> None:
        self.write()
        self.get_registered_model(name).tags.pop(key, None)

    def set_model_version_tag(self, name: str, number: str, key: str, value: str) -> None:
        self.write()
        self.versions[str(number)].tags[key] = value

    def delete_model_version_tag(self, name: str, number: str, key: str) -> None:
        self.write()
        self.versions[str(number)].tags.pop(key, None)

    def update_model_version(self, *given: Any) -> None:
        self.write()

    def list_artifacts(self, run: str, folder: str) -> list[Any]:
        place = self.kept(run) / folder
        paths = sorted(place.iterdir()) if place.exists() else []
        return [SimpleNamespace(path=f"{folder}/{path.name}", is_dir=path.is_dir()) for path in paths]

    def download_artifacts(self, run: str, path: str, place: str = "") -> str:
        return str(self.kept(run) / path)

    def log_text(self, run: str, text: str, name: str) -> None:
        self.write()
        write_text(self.kept(run) / name, text)

    def log_artifact(self, run: str, path: str, folder: str) -> None:
        self.write()
        place = self.kept(run) / folder
        if Path(path).is_dir():
            shutil.copytree(path, place, dirs_exist_ok=True)
        else:
            place.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, place)

    def get_run(self, run: str) -> Any:
        return SimpleNamespace(info=SimpleNamespace(artifact_uri=f"kept/{run}"))

    def kept(self, run: str) -> Path:
        """Return the folder of a run's files."""
        return self.root / "kept" / run
