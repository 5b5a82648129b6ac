"""One changed or missing byte in any artifact is found when it is opened, and named; the long run is a benchmark."""

import sys

import pytest

from benchmarks import corrupt


def test_every_kind_of_artifact_shows_a_changed_byte(
    tiny: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ten cases of each kind; and of damaged vectors one shard alone is made again."""
    monkeypatch.setattr("harr.io.model_folder.PACKAGED", tiny)
    monkeypatch.setattr(sys, "argv", ["corrupt", "--cases", "110"])
    code, told = corrupt.main(), capsys.readouterr().out
    assert code == 0, told
    assert "all: 110 of 110 found" in told
    assert "one damaged shard of vectors: 12 of 48 passages embedded again" in told
