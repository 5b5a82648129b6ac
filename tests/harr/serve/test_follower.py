"""Following a name: a moved alias is loaded, any failure is reported, and the previous model stays."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from projects import register
from servers import until

from harr.errors import IndexMismatch
from harr.io.files import publish, write_json
from harr.serve import follower as followers
from harr.serve.follower import Follower
from harr.services.model_registry import open_registry

NAME = "harr-smoke"
CHAMPION = f"models:/{NAME}@champion"


def model(text: str) -> Path:
    """Publish a model folder as stage merge does."""
    write_json(Path("work/model/query/config.json"), {"text": text})
    publish(Path("work/model"), Path("models/retriever"))
    return Path("models/retriever")


@pytest.fixture
def client(stored: Path) -> Any:
    return open_registry(Path())


class Following:
    """Starts followers and records what they load."""

    def __init__(self) -> None:
        self.loaded: list[tuple[str, str]] = []
        """Loaded versions, each with its folder's text."""
        self.refused: list[str] = []
        """Versions that did not fit."""
        self.renewed: list[bool] = []
        """What the next checks of the corpus say: whether it has changed."""
        self.unfit = "other index"
        """Word of the models that do not fit."""
        self.begun: list[Follower] = []

    def load(self, folder: Path, version: str) -> None:
        if not folder.is_dir():
            raise IndexMismatch(f"{folder} is gone")
        text = (folder / "query/config.json").read_text()
        if self.unfit in text:
            self.refused.append(version)
            raise IndexMismatch("this model is for another index")
        self.loaded.append((version, text))

    def __call__(self, name: str = CHAMPION) -> Follower:
        renewed = self.renewed
        self.begun.append(Follower(name, Path(), Path("cache"), self.load, lambda: bool(renewed) and renewed.pop()))
        self.begun[-1].start()
        return self.begun[-1]

    @property
    def versions(self) -> list[str]:
        return [version for version, _ in self.loaded]


@pytest.fixture
def follow(monkeypatch: pytest.MonkeyPatch) -> Iterator[Following]:
    monkeypatch.setattr(followers, "EVERY_SECONDS", 0.05)
    following = Following()
    yield following
    for one in following.begun:
        one.close()


def test_an_alias_that_moves_is_taken_over_and_back_and_loaded_again_over_another_corpus(
    client: Any, follow: Following
) -> None:
    first = register(client, model("first"))
    follower = follow()
    assert follow.versions == [first]
    second = register(client, model("second"))
    assert until(lambda: len(follow.loaded) == 2)
    client.set_registered_model_alias(NAME, "champion", first)
    assert until(lambda: follower.changes == 2)
    one, two, three = follow.loaded
    assert follow.versions == [first, second, first] and one == three != two and follower.problem == ""
    follow.renewed.append(True)
    assert until(lambda: len(follow.loaded) == 4)
    assert follow.versions[-1] == first and follower.changes == 2


def test_another_model_of_the_same_number_is_taken_over(client: Any, follow: Following) -> None:
    first = register(client, model("first"))
    follow()
    client.delete_registered_model(NAME)  # or mlflow.db was restored from a backup: numbers are reused
    register(client, model("another, for another index"))
    assert until(lambda: follow.refused == [first])
    client.delete_registered_model(NAME)
    register(client, model("third"))
    assert until(lambda: len(follow.loaded) == 2)
    assert {*follow.versions} == {first} and "third" in follow.loaded[-1][1]


def test_what_cannot_be_taken_over_is_reported_until_it_can(client: Any, follow: Following) -> None:
    first = register(client, model("first"))
    follower = follow()
    client.delete_registered_model_alias(NAME, "champion")
    assert until(lambda: "the registry has no models:/harr-smoke@champion" in follower.problem)
    register(client, model("other index"))
    assert until(lambda: follower.problem == "this model is for another index")
    register(client, model("a language model"), "language_model")
    assert until(lambda: "is of kind language_model; a server answers with a retriever" in follower.problem)
    third = register(client, model("third"))
    assert until(lambda: len(follow.loaded) == 2 and not follower.problem)
    assert follow.versions == [first, third] and follower.changes == 1


def test_a_version_that_does_not_fit_is_loaded_once(client: Any, follow: Following) -> None:
    register(client, model("first"))
    one = follow()
    second = register(client, model("other index"))
    assert until(lambda: one.problem == "this model is for another index")
    client.delete_registered_model_alias(NAME, "champion")
    assert until(lambda: "the registry has no" in one.problem)
    client.set_registered_model_alias(NAME, "champion", second)
    assert until(lambda: one.problem == "this model is for another index")
    assert follow.refused == [second]


def test_over_a_changed_corpus_the_version_that_fits_it_is_taken_over(client: Any, follow: Following) -> None:
    """The old one no longer fits, and until the new one is champion that is the problem."""
    first = register(client, model("first"))
    follower = follow()
    follow.unfit = "first"
    follow.renewed.extend([True] * 1000)
    assert until(lambda: first in follow.refused and follower.problem == "this model is for another index")
    second = register(client, model("second"))
    assert until(lambda: second in follow.versions and not follower.problem)


def test_a_served_version_that_another_server_removed_is_fetched_again(client: Any, follow: Following) -> None:
    register(client, model("first"))
    follower = follow()
    shutil.rmtree("cache")
    follow.renewed.extend([True] * 1000)
    assert until(lambda: len(follow.loaded) > 1 and not follower.problem)
