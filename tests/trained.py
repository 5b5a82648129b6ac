"""A project with an index and a trained retriever, for tests of what applications use."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from projects import make_project, train_stand_in


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A project in its own folder (tests/projects.py)."""
    folder = tmp_path_factory.mktemp("project")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        make_project()
        figures = train_stand_in(0.3)
        assert figures["cosine_min"] > 0.9999 and figures["document_cosine_min"] > 0.9999
    yield folder


@pytest.fixture
def here(project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(project)
    return project
