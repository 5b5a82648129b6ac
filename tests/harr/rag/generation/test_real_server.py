"""The LLM pipelines against `transformers serve`: a real program on loopback with a small random model."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest

from harr.errors import ServiceUnavailable
from harr.params.generator import ServerParams
from harr.rag.generation.server import ServerGenerator
from harr.rag.pipelines.multistep import multistep
from harr.rag.pipelines.pick import pick
from harr.rag.pipelines.react import react
from harr.rag.pipelines.search_r1 import search_r1
from harr.rag.rollout import play
from harr.types import Generate, Passage, Pipeline, Question, Retrieval, Search

PIPELINES: dict[str, Pipeline] = {
    "react": partial(react, max_searches=2),
    "search_r1": partial(search_r1, max_searches=2),
    "multistep": partial(multistep, max_hops=2),
    "pick": partial(pick, picks=2, reader=True),
}
QUESTIONS = [Question(f"q{n}", f"Where was person {n} born?", ("Bath",)) for n in range(4)]


class OnePassage:
    """Finds the same passage whatever is asked."""

    def retrieve(self, searches: Sequence[Search]) -> list[Retrieval]:
        return [Retrieval((Passage("p", "Ada was born in Bath.", "Ada"),)) for _ in searches]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A causal language model of two layers with random weights, and its tokenizer."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

    folder = tmp_path_factory.mktemp("served") / "tiny"
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: number for number, token in enumerate(["<eos>", *alphabet])}
    raw = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    raw.pre_tokenizer, raw.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, eos_token="<eos>", pad_token="<eos>")
    tokenizer.chat_template = (
        "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
        "{% if add_generation_prompt %}assistant: {% endif %}"
    )
    config = Qwen3Config(
        vocab_size=len(vocabulary),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=8192,
        eos_token_id=0,
        pad_token_id=0,
    )
    Qwen3ForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


class Program:
    """`transformers serve` on one port; may be killed and started again."""

    def __init__(self, model: Path, home: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.model, self.home = model, home
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        script = shutil.which("transformers", path=str(Path(sys.executable).parent))
        environment = os.environ | {"HF_HOME": str(self.home), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
        command = [str(script), "serve", "--host", "127.0.0.1", "--port", str(self.port), "--device", "cpu"]
        self.process = subprocess.Popen(
            command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )

    def wait(self) -> None:
        for _ in range(400):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=1).read()
                return
            except OSError:
                time.sleep(0.2)
        raise AssertionError("transformers serve did not come up")

    def kill(self) -> None:
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def generator(self, **changes: float) -> ServerGenerator:
        values = {"max_tokens": 16, "concurrency": 2, "deadline_seconds": 90.0, "temperature": 0.0} | changes
        address = f"http://127.0.0.1:{self.port}/v1"
        return ServerGenerator(ServerParams(kind="server", base_url=address, model=str(self.model), **values))


@pytest.fixture(scope="module")
def program(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    """A running server."""
    home = tmp_path_factory.mktemp("home")
    (home / "hub").mkdir()
    running = Program(model, home)
    running.start()
    running.wait()
    yield running
    running.kill()


@pytest.mark.parametrize("name", PIPELINES)
def test_a_model_that_writes_nonsense_ends_every_episode(name: str, program: Program) -> None:
    generator = program.generator()
    episodes = play(QUESTIONS, PIPELINES[name], OnePassage(), generator)
    assert [episode.question for episode in episodes] == QUESTIONS
    # A pick has no format; the agent's chat says "Final answer:", and this server repeats the chat before the reply.
    if name not in ("react", "pick"):
        assert all(episode.outcome.malformed > 0 for episode in episodes), (
            "random weights obey no format: it is counted"
        )
    usage = generator.usage()
    assert usage["requests"] >= len(QUESTIONS) and usage["completion_tokens"] > 0 and usage["prompt_tokens"] > 0


def test_a_server_killed_and_restarted_in_the_middle(program: Program) -> None:
    """The rollout waits, asks again, and ends as it would have."""
    expected = play(QUESTIONS, PIPELINES["search_r1"], OnePassage(), program.generator())
    generator = program.generator()
    rounds: list[int] = []

    class Killing:
        def complete(self, requests: Sequence[Generate]) -> list[str]:
            rounds.append(len(requests))
            if len(rounds) == 2:
                program.kill()
                threading.Timer(1.0, program.start).start()
            return generator.complete(requests)

        usage: Callable[[], dict[str, float]] = generator.usage

    assert play(QUESTIONS, PIPELINES["search_r1"], OnePassage(), Killing()) == expected
    assert generator.usage()["retries"] > 0


def test_a_server_that_never_answers_is_left_at_the_deadline() -> None:
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen()
        section = ServerParams(
            kind="server",
            base_url=f"http://127.0.0.1:{deaf.getsockname()[1]}/v1",
            model="m",
            timeout_seconds=0.3,
            deadline_seconds=1.0,
        )
        with pytest.raises(ServiceUnavailable, match=r"no answer within 0\.3 s, tried for 1 s"):
            play(QUESTIONS[:1], PIPELINES["react"], OnePassage(), ServerGenerator(section))
