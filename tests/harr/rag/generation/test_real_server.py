"""The language model's pipelines against `transformers serve`: a real server on loopback with a small random model."""

import os
import threading
from collections.abc import Iterator, Sequence
from functools import partial

import pytest
from by_hand import Fixed
from letters import save_letters
from servers import BIN, Server, free_port

from harr.params.generator import ServedParams
from harr.rag.generation.server import ServerGenerator
from harr.rag.pipelines.multistep import multistep
from harr.rag.pipelines.search_r1 import search_r1
from harr.rag.rollout import play
from harr.types import Generate, Passage, Pipeline, Question
from tests.serving import asking

pytestmark = pytest.mark.services

PIPELINES: dict[str, Pipeline] = {
    "search_r1": partial(search_r1, max_searches=2),
    "multistep": partial(multistep, max_hops=2),
}
QUESTIONS = [Question(f"q{n}", f"Where was person {n} born?", ("Bath",)) for n in range(4)]
SHELF = Fixed(Passage("p", "Ada was born in Bath.", "Ada"))


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A running server; its folder holds a random model of printable characters."""
    folder, port = tmp_path_factory.mktemp("served"), free_port()
    save_letters(folder / "letters", spread=0.3, room=8192, printable=True)
    (folder / "home" / "hub").mkdir(parents=True)
    environment = os.environ | {"HF_HOME": str(folder / "home"), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    command = [f"{BIN}/transformers", "serve", "--host", "127.0.0.1", "--port", str(port), "--device", "cpu"]
    running = Server(folder, command, port, environment)
    running.start()
    yield running
    running.stop()


def section(program: Server) -> ServedParams:
    limits = {"max_tokens": 16, "concurrency": 2, "deadline_seconds": 90.0, "temperature": 0.0}
    address, model = f"http://127.0.0.1:{program.port}/v1", str(program.folder / "letters")
    return asking(address, model=model, **limits)


@pytest.mark.fault(11)
@pytest.mark.parametrize("name", PIPELINES)
def test_a_model_that_writes_nonsense_ends_every_episode(name: str, program: Server) -> None:
    generator = ServerGenerator(section(program))
    episodes = play(QUESTIONS, PIPELINES[name], SHELF, generator)
    assert [episode.question for episode in episodes] == QUESTIONS
    assert all(episode.outcome.malformed > 0 for episode in episodes), "random weights obey no format"
    usage = generator.usage()
    assert usage["requests"] >= len(QUESTIONS) and usage["completion_tokens"] > 0 and usage["prompt_tokens"] > 0


def test_a_server_killed_and_restarted_in_the_middle(program: Server) -> None:
    """The rollout waits, asks again, and ends as it would have ended."""
    expected = play(QUESTIONS, PIPELINES["search_r1"], SHELF, ServerGenerator(section(program)))
    rounds: list[int] = []

    class Killing(ServerGenerator):
        def complete(self, requests: Sequence[Generate]) -> list[str]:
            rounds.append(len(requests))
            if len(rounds) == 2:
                program.stop()
                threading.Timer(1.0, program.start).start()
            return super().complete(requests)

    generator = Killing(section(program))
    assert play(QUESTIONS, PIPELINES["search_r1"], SHELF, generator) == expected
    assert generator.usage()["retries"] > 0
