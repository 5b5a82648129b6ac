"""A project whose retriever is served."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from projects import make_project, train_stand_in

from harr.arms import ARMS, TRAINED
from harr.builders.players import open_players
from harr.params import Params
from harr.types import Search
from tasks.paths import PLACES, RETRIEVER


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with two trained retrievers, models/retriever and second."""
    folder = tmp_path_factory.mktemp("project")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        make_project()
        train_stand_in(0.6)
        shutil.copytree(RETRIEVER, "second")
        train_stand_in(0.3)
    return folder


@pytest.fixture(scope="module")
def within(project: Path) -> Callable[..., list[list[str]]]:
    """A function that returns what harr itself finds in the project, by ids."""

    def found(searches: list[Search], model: str = "champion") -> list[list[str]]:
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(project)
            with open_players(Params.load(), PLACES, [], candidates="corpus") as player:
                policy = player(ARMS[TRAINED], RETRIEVER) if model == "champion" else player(ARMS["frozen"], None)
                return [[passage.id for passage in one.passages] for one in policy.retrieve(searches)]

    return found
