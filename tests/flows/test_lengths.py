"""The command over lengths: whose word counts, and what it says to a run that has no stories."""

import sys
from pathlib import Path

import pytest

from flows import lengths
from harr.params import Params

ROOT = Path(__file__).parents[2]


def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, section: str, *options: str) -> dict:
    """What the command asks for, without playing."""
    found: dict = {}

    def note(params: Params, sentences: object, **others: object) -> list:
        found.update(others, sentences=tuple(sentences))
        return []

    recipe = (ROOT / "recipes" / "qrag_babilong_small.yaml").read_text()
    (tmp_path / "run.yaml").write_text(recipe + section)
    monkeypatch.setattr(lengths, "play_lengths", note)
    monkeypatch.setattr(sys, "argv", ["lengths", "--params", str(tmp_path / "run.yaml"), *options])
    lengths.command()
    return found


def test_an_option_goes_before_the_section_and_that_before_the_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    section = "\nlengths: {sentences: [200], seed: 7}\n"
    both = asked(monkeypatch, tmp_path, section, "--lengths", "50", "60", "--questions", "9")
    assert (both["sentences"], both["seed"], both["questions"]) == ((50, 60), 7, 9)
    assert asked(monkeypatch, tmp_path, section)["sentences"] == (200,)
    assert asked(monkeypatch, tmp_path, "")["sentences"] == (100, 1000, 10_000, 40_000)
    assert asked(monkeypatch, tmp_path, "")["questions"] == 0, "as many as the run's test split"


def test_a_run_without_stories_is_one_clear_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["lengths", "--params", str(ROOT / "params.yaml"), "--out", str(tmp_path)])
    with pytest.raises(SystemExit):
        lengths.command()
    assert "needs download.dataset babilong or ruler" in capsys.readouterr().err
