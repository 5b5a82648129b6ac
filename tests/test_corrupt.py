"""Any changed or missing byte in an artifact is found when it is opened, and named; the long run is a benchmark."""

import sys

import pytest

from benchmarks import corrupt


def test_every_kind_of_artifact_shows_a_changed_byte(
    tiny: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ten cases of each kind."""
    monkeypatch.setattr("harr.io.model_folder.PACKAGED", tiny)
    monkeypatch.setattr(sys, "argv", ["corrupt", "--cases", "100"])
    code, output = corrupt.main(), capsys.readouterr().out
    assert code == 0, output
    assert "all: 100 of 100 found" in output
