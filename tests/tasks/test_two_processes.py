"""Two real processes of `accelerate launch`, with a server that writes, filter and play to the same files as one."""

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from harr_encyclopaedia.scripted import Scripted
from launching import launch
from serving import chat, serving
from stages import make_world, nothing, world_params

from harr.compute import distributed
from harr.corpus.passages import read_questions
from harr.io.files import read_json, write_json
from harr.params import Params
from harr.types import Generate
from tasks.filter import filter_training_questions
from tasks.paths import FILTERED, QUESTIONS
from tasks.play import play_arms

pytestmark = pytest.mark.services

ARMS = ["bm25", "frozen", "history", "hybrid"]
ROWS = Path("rows.json")


def reply(body: dict[str, Any], number: int) -> tuple[int, Any]:
    """Answer as a server of the scripted player."""
    return 200, chat(Scripted().complete([Generate(tuple(body["messages"]))])[0])


def play() -> None:
    """Filter and play in the current folder; write the rows of all arms to a file."""
    params = Params.load()
    filter_training_questions(params, nothing)
    rows, _ = play_arms(params, read_questions(QUESTIONS / "test.jsonl"), nothing, model=None)
    distributed.main_process_only(lambda: write_json(ROWS, rows))


def test_two_processes_filter_and_play_what_one_does(
    workplace: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory, tiny: str
) -> None:
    with serving(reply) as server:
        make_world(
            world_params(
                tiny,
                generator={"kind": "server", "server": {"urls": [server.base_url]}, "model": "scripted"},
                filter={"group_size": 4, "target": 6, "batch_size": 6},
                evaluate={"arms": ARMS, "batch_size": 6},
            )
        )
        second = tmp_path_factory.mktemp("two")
        shutil.copytree("data", second / "data")
        shutil.copy("params.yaml", second)
        play()
        asked = len(server.bodies)
        monkeypatch.chdir(second)
        done = launch(__file__)
        assert done.returncode == 0, done.stderr
        assert asked > 50 and len(server.bodies) == 2 * asked, "the main process alone asks the server"
    for name in (FILTERED / "questions.jsonl", FILTERED / "statistics.jsonl"):
        assert (workplace / name).read_bytes() == (second / name).read_bytes()
    one, two = (read_json(folder / ROWS) for folder in (workplace, second))
    assert set(one) == set(ARMS) and one == two


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    play()
