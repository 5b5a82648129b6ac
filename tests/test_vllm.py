"""harr's client against a real vLLM on the CPU (``make vllm``): what docs/serving.md says of it."""

import json
import threading
import urllib.request
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
CACHE = ("--enable-prefix-caching", "--block-size", "32")
ROOM = 512
"""Tokens that the model reads and writes."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A random model of single characters."""
    return str(save_letters(tmp_path_factory.mktemp("letters"), spread=0.2, room=ROOM, printable=True, head=32))


@pytest.fixture(scope="module")
def server(model: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Vllm]:
    with vllm(model, tmp_path_factory.mktemp("log") / "vllm.log", *LORA, *CACHE) as started:
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
        with pytest.raises(ParamsError, match=r"check servers\.language_model\.urls, generator\.model") as caught:
            ServerGenerator(section).complete(PROMPTS[:1])
        assert "\n" not in str(caught.value)


COMMON = "the beginning that all the prompts share fills some blocks of the cache "
QUESTIONS = [Question(f"q{number}", f"{COMMON}{letter}") for number, letter in enumerate("qwer")]


def play_and_learn(server: Vllm, model: str, folder: Path, **changes: Any) -> list[dict[str, float]]:
    """Train some steps with ``train.server``; return the history."""
    reward = Reward({"letters:share_of_a": 1.0})
    setup = Setup(QUESTIONS, spell, OnePassage(), None, reward, "letters", language_model=model)  # type: ignore[arg-type]
    lora = {"lora": LoraParams(rank=8, alpha=64), "optimizer": {"learning_rate": 2e-2}, "max_tokens": 6}
    of = {"steps": 4, "questions_per_step": 4, "group_size": 8, "episodes_per_pass": 8}
    served: dict[str, Any] = {"method": "agent", "server": ServerParams(urls=(server.url,))}
    params = AgentParams(**(served | lora | of | changes))
    return train(params, setup, folder / "out", folder / "work", lambda step, row: None, 0)


def test_a_lora_that_learns_is_sampled_by_it(server: Vllm, model: str, tmp_path: Path) -> None:
    """After every update the server samples with the newest LoRA, even for prompts that it has cached."""
    history = play_and_learn(server, model, tmp_path)
    assert max(row["logprob_gap"] for row in history) < 1e-3
    assert all(row["is_ratio_mean"] == pytest.approx(1.0, abs=1e-2) for row in history)
    with urllib.request.urlopen(f"{server.url}/v1/models") as answer:
        assert len(json.load(answer)["data"]) == 2, "the base and the last LoRA"


def test_rounding_of_bfloat16_drops_no_episode(model: str, tmp_path: Path) -> None:
    with vllm(model, tmp_path / "vllm.log", *LORA, *CACHE, "--dtype", "bfloat16") as rounding:
        optimizer = {"learning_rate": 2e-2, "precision": "bfloat16"}
        history = play_and_learn(rounding, model, tmp_path, optimizer=optimizer, max_tokens=100)
    assert all(1e-4 < row["logprob_gap"] < 0.1 for row in history)
    assert all(row["is_ratio_min"] > 0.7 and row["is_ratio_max"] < 1.3 for row in history), (
        "a token's, not an episode's"
    )
    assert all(row["capped_share"] == 0 for row in history)


def test_a_killed_server_is_waited_for_and_says_the_same(server: Vllm) -> None:
    client = generator(server)
    before = client.complete(PROMPTS)
    server.kill()
    starter = threading.Thread(target=server.start)
    starter.start()
    assert client.complete(PROMPTS) == before
    starter.join()
    assert client.usage()["retries"] > 0
