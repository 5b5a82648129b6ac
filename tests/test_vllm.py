"""The client of harr against a real vLLM on the CPU (``make vllm``): what docs/serving.md says of it."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from letters import OnePassage, save_letters, spell
from vllm_cpu import START, Vllm, vllm

from harr.errors import ParamsError
from harr.params.generator import ServedParams
from harr.params.servers import ServerParams
from harr.params.train import AgentParams
from harr.params.train_facts import LoraParams
from harr.rag.generation.local_model import LocalGenerator
from harr.rag.generation.server import ServerGenerator
from harr.rag.scoring.reward import Reward
from harr.rag.setup import Setup
from harr.train.agent import train
from harr.types import ContextFull, Generate, PromptTooLong, Question, TruncatedCompletion
from tests.serving import asking

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(2 * START)]
LORA = ("--enable-lora", "--max-lora-rank", "16", "--logprobs-mode", "processed_logprobs")
ROOM = 512
"""Tokens that the model reads and writes."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A random model of single characters."""
    return str(save_letters(tmp_path_factory.mktemp("letters"), spread=0.2, room=ROOM, printable=True, head=32))


@pytest.fixture(scope="module")
def server(model: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Vllm]:
    with vllm(model, tmp_path_factory.mktemp("log") / "vllm.log", *LORA, "--enable-prefix-caching") as started:
        yield started


def generator(server: Vllm, seed: int = 0, **changes: Any) -> ServerGenerator:
    values = {"max_tokens": 12, "concurrency": 16, "deadline_seconds": float(START)} | changes
    return ServerGenerator(asking(f"{server.url}/v1", model="tiny", **values), seed=seed)


def raw(*prompts: str, stop: tuple[str, ...] = ()) -> list[Generate]:
    return [Generate(prompt=prompt, stop=stop) for prompt in prompts]


PROMPTS = raw(*(f"Who taught number {number}?" for number in range(24)))


def test_at_temperature_0_it_says_what_the_process_says(server: Vllm, model: str) -> None:
    here = LocalGenerator(model, temperature=0.0, max_tokens=12, batch_size=8, seed=0)
    assert generator(server, temperature=0.0).complete(PROMPTS) == here.complete(PROMPTS)
    chats = [Generate(({"role": "user", "content": request.prompt},)) for request in PROMPTS[:4]]
    assert generator(server, temperature=0.0).complete(chats) == here.complete(chats)


def test_a_seed_decides_whatever_is_asked_at_the_same_time(server: Vllm) -> None:
    one, many = generator(server, concurrency=1), generator(server)
    assert one.complete(PROMPTS[:6]) == many.complete(PROMPTS)[:6]
    assert many.complete(PROMPTS) != generator(server, seed=1).complete(PROMPTS)


def test_a_stop_string_ends_a_completion(server: Vllm) -> None:
    whole = generator(server).complete(PROMPTS)
    stop = next(text for text in whole if len(text) > 4)[3]
    found = generator(server).complete([replace(request, stop=(stop,)) for request in PROMPTS])
    assert not any(stop in text for text in found) and sum(map(len, found)) < sum(map(len, whole))
    assert all(isinstance(text, TruncatedCompletion) for text in whole if len(text) == 12)


def test_the_length_of_a_prompt_is_data_to_the_token(server: Vllm) -> None:
    kinds: dict[int, type[str]] = {500: TruncatedCompletion, 501: ContextFull, 511: ContextFull}
    kinds |= dict.fromkeys((512, 513, 100_000), PromptTooLong)
    client = generator(server, temperature=0.0, extra_body={"ignore_eos": True})
    found = client.complete(raw(*("a" * length for length in kinds)))
    assert {length: type(text) for length, text in zip(kinds, found, strict=True)} == kinds
    assert (client.usage()["too_long"], client.usage()["no_room"]) == (3.0, 2.0)


def test_what_no_server_mends_is_one_line(server: Vllm) -> None:
    for changes in ({"model": "nobody"}, {"max_tokens": ROOM + 1}):
        section = ServedParams(
            kind="server",
            server=ServerParams(name="language_model", urls=(f"{server.url}/v1",)),
            **({"model": "tiny"} | changes),
        )
        with pytest.raises(ParamsError, match=r"check servers\.llm\.urls, generator\.model") as caught:
            ServerGenerator(section).complete(PROMPTS[:1])
        assert "\n" not in str(caught.value)


QUESTIONS = [Question(f"q{number}", text) for number, text in enumerate(["q", "w", "e", "r"])]


def test_a_lora_that_learns_is_sampled_by_it(server: Vllm, model: str, tmp_path: Path) -> None:
    """``train.vllm: adapter``: after every update the server samples with the newest LoRA."""
    reward = Reward({"letters:share_of_a": 1.0})
    setup = Setup(QUESTIONS, spell, OnePassage(), None, reward, "letters", language_model=model)  # type: ignore[arg-type]
    lora = {"lora": LoraParams(rank=8, alpha=64), "optimizer": {"learning_rate": 2e-2}, "max_tokens": 6}
    of = {"steps": 4, "questions_per_step": 4, "group_size": 8, "episodes_per_pass": 8}
    params = AgentParams(method="agent", vllm="adapter", server=ServerParams(urls=(server.url,)), **lora, **of)
    history = train(params, setup, tmp_path / "out", tmp_path / "work", lambda step, row: None, 0)
    assert max(row["logprob_gap"] for row in history) < 1e-3
    assert all(row["is_ratio_mean"] == pytest.approx(1.0, abs=1e-2) for row in history)


def test_a_killed_server_is_waited_for_and_says_the_same(server: Vllm) -> None:
    before = generator(server).complete(PROMPTS)
    server.kill()
    starter = threading.Thread(target=server.start)
    starter.start()
    client = generator(server)
    assert client.complete(PROMPTS) == before
    starter.join()
    assert client.usage()["retries"] > 0
