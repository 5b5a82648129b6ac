"""The command over lengths: whose word counts, and what it says to a run that has no stories."""

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from harr_lengths import documents
from serving import chat, serving

from harr.embed.encoder import Encoder
from harr.io.files import read_json
from harr.rag.policies.encoder_adapter import add_adapter, save_adapter

ROOT = Path(__file__).parents[3]
RECIPE = (ROOT / "recipes/qrag_babilong_small.yaml").read_text()
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, tiny: str) -> Path:
    """Two towers with fresh adapters, as stage train leaves them."""
    folder = tmp_path_factory.mktemp("model") / "adapter"
    for part in (folder, folder / "action"):
        encoder = Encoder(tiny, max_tokens=64)
        save_adapter(add_adapter(encoder, rank=2, alpha=2, seed=0), encoder, part)
    return folder


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny: str) -> Callable[..., str]:
    """Writes a recipe with changed words into the current folder; returns its path."""
    monkeypatch.chdir(tmp_path)

    def write(noise: str = "harr_encyclopaedia.dataset:noise") -> str:
        text = re.sub("(?<=model: )gt-.*", tiny, RECIPE, count=1)
        text = text.replace("train_questions: 4000", "train_questions: 5")
        (tmp_path / "run.yaml").write_text(re.sub("(?<=noise: )[^ ]+", noise, text))
        return str(tmp_path / "run.yaml")

    return write


def test_what_cannot_be_played_is_one_line_before_anything_is_encoded(
    monkeypatch: pytest.MonkeyPatch, written: Callable[..., str], model: Path, harr: Run
) -> None:
    Path("book.txt").write_text("\n\n".join(f"Sentence number {i} is about nothing." for i in range(300)))
    monkeypatch.setattr(Encoder, "forward", None)  # whoever encodes fails
    common = ("lengths", "--model", str(model), "--questions", "3", "--out", "out", "--params")
    done = harr(*common, str(ROOT / "params.yaml"))
    assert done.returncode == 1 and "needs a data set of stories, such as harr_lengths.babilong:DATASET" in done.stderr
    done = harr(*common, written(), "--lengths", "100", "2")
    assert done.returncode == 1 and done.stderr.splitlines()[-1].startswith("error: length 2: a story has ")
    done = harr(*common, written(noise="book.txt"), "--lengths", "50", "1K")
    last = done.stderr.splitlines()[-1]
    assert last.startswith("error: length 1000: needs ") and "found 150 in the second half of book.txt" in last
    done = harr("lengths", "--tokens", "10X")
    assert done.returncode == 2 and "'10X' is no length; expected a positive number such as" in done.stderr
    assert not Path("out").exists() and not Path("work").exists()


def test_lengths_in_tokens_and_in_sentences_are_played_and_printed(
    monkeypatch: pytest.MonkeyPatch, written: Callable[..., str], model: Path, harr: Run
) -> None:
    monkeypatch.setattr(documents, "SHARED", 60)  # the longer one is read from shards on disk
    options = ("--lengths", "50", "--tokens", "1K", "--model", str(model), "--questions", "3", "--out", "out")
    done = harr("lengths", "--params", written(), *options)
    assert done.returncode == 0, done.stderr
    table = read_json(Path("out/lengths.json"))
    (short, short_tokens), (long, long_tokens) = sorted({(row["sentences"], row["tokens"]) for row in table})
    assert short == 50 and long_tokens == pytest.approx(1000, abs=20)
    assert short_tokens / short == pytest.approx(long_tokens / long, rel=0.05)
    assert f"{long:>9,}  {long_tokens:>12,}" in done.stdout
    assert len(Path(f"out/eval_seed1_ns{long}.jsonl").read_text().splitlines()) == 3
    assert not list(Path("work").rglob("*.npy")), "shards go when the stories have been played"


def test_a_generator_answers_from_the_picks_that_a_rule_keeps(
    written: Callable[..., str], model: Path, harr: Run
) -> None:
    done = harr(
        "lengths", "--params", written(), "--lengths", "50", "--model", str(model), "--questions", "3", "--out", "out"
    )
    assert done.returncode == 0, done.stderr
    values = yaml.safe_load(Path("run.yaml").read_text())
    values["pipeline"]["reader"] = True
    log = "out/eval_seed1_ns50.jsonl"
    with serving(lambda body, number: (200, chat("It is in the garden."))) as served:
        values |= {"servers": {"llm": {"urls": [served.base_url]}}}
        values |= {"generator": {"kind": "server", "server": "llm", "model": "m"}}
        Path("answers.yaml").write_text(yaml.safe_dump(values))
        done = harr("lengths", "--params", "answers.yaml", "--answers", log, "--keep", "picks", "--limit", "1")
    assert done.returncode == 0, done.stderr
    assert "answer_em" in done.stdout and "answer_f1" in done.stdout
    rows = [json.loads(line) for line in Path("out/answers_eval_seed1_ns50.jsonl").read_text().splitlines()]
    assert len(rows) == 3 and {row["answer"] for row in rows} == {"garden"}, "the last word"
    asked = [body["messages"][-1]["content"] for body in served.bodies]
    assert asked and all(row["question"] in " ".join(asked) for row in rows)
