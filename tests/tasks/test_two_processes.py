"""Two real processes of `accelerate launch` filter and play as one does, where a server writes: the same files."""

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from launching import launch
from serving import chat, serving

from harr.compute import distributed
from harr.corpus.passages import read_questions
from harr.io.files import read_json, write_json
from harr.params import Params
from harr.types import Generate
from harr.world.scripted import Scripted
from tasks.download import download_corpus
from tasks.embed import embed_passages
from tasks.evaluate import play_arms
from tasks.filter import filter_training_questions
from tasks.index import index_passages
from tasks.paths import FILTERED, QUESTIONS

pytestmark = pytest.mark.services

ARMS = ["bm25", "frozen", "history", "hybrid"]
ROWS = Path("rows.json")


def reply(body: dict[str, Any], number: int) -> tuple[int, Any]:
    """A server of the scripted player."""
    return 200, chat(Scripted().complete([Generate(tuple(body["messages"]))])[0])


def play() -> None:
    """Filter and play in the current folder; the rows of all arms go into a file."""
    params = Params.load()
    filter_training_questions.fn(params, unlogged)
    rows, _ = play_arms.fn(params, read_questions(QUESTIONS / "test.jsonl"), unlogged, model=None)
    distributed.main_process_only(lambda: write_json(ROWS, rows))


def unlogged(step: int, values: object) -> None:
    """Log nowhere."""


def test_two_processes_filter_and_play_what_one_does(
    workplace: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    params = yaml.safe_load(Path("params.yaml").read_text())
    params["download"] |= {"passages": 200, "train_questions": 24, "test_questions": 12}
    params["filter"] |= {"target": 8, "batch_size": 8}
    params["evaluate"] |= {"arms": ARMS, "batch_size": 8}
    with serving(reply) as server:
        params["generator"] = {"kind": "server", "base_url": server.base_url, "model": "scripted"}
        Path("params.yaml").write_text(yaml.safe_dump(params))
        stages: list[Callable[..., object]] = [download_corpus.fn, embed_passages.fn, index_passages.fn]
        for stage in stages:
            stage(Params.load())
        second = tmp_path_factory.mktemp("two")
        shutil.copytree("data", second / "data")
        shutil.copy("params.yaml", second)
        play()
        asked = len(server.bodies)
        monkeypatch.chdir(second)
        done = launch(__file__)
        assert done.returncode == 0, done.stderr
        assert asked > 100 and len(server.bodies) == 2 * asked, "the main process alone asks the server"
    for name in (FILTERED / "questions.jsonl", FILTERED / "statistics.jsonl"):
        assert (workplace / name).read_bytes() == (second / name).read_bytes()
    one, two = (read_json(folder / ROWS) for folder in (workplace, second))
    assert set(one) == set(ARMS) and one == two


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    play()
