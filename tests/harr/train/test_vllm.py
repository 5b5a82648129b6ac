"""vLLM samples for the trainer: what it wrote is trained, weights go out unchanged, a server that goes is one line."""

from collections.abc import Callable, Generator as PyGenerator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import requests
import torch
from letters import AGENT, QUESTIONS, TOLD, letters_setup, logprobs, nothing
from trl.generation.vllm_generation import VLLMGeneration
from trl.trainer import grpo_trainer

from harr.errors import ParamsError, ServiceUnavailable
from harr.params.loop import CheckpointParams
from harr.params.servers import ServerParams
from harr.params.train_facts import LoraParams
from harr.rag.generation.adapter import begin
from harr.rag.generation.local_model import LanguageModel, load_model
from harr.rag.setup import Setup
from harr.train import agent
from harr.train.agent import AgentCallback, RolloutFunction, train
from harr.train.vllm import attach_vllm, check_vllm
from harr.types import Generate, Outcome, Question, Request


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    return letters_setup(tmp_path / "letters")


def mixed_stops(question: Question) -> PyGenerator[Request, Any, Outcome]:
    """As ``spell``, but every other question stops at other letters."""
    stop = ("a",) if question.text in "qe" else ("d", "ef")
    first: str = yield Generate(prompt=question.text, stop=stop)
    answer: str = yield Generate(prompt=f"{question.text}{first}{stop[0]}{TOLD}", stop=("t",))
    return Outcome(answer)


class LetterEngine:
    """Stands where TRL has vLLM: samples by its own random numbers, and sometimes a token past the stop string."""

    model: Any
    tokenizer: Any

    def __init__(self, *, temperature: float, max_completion_length: int, **told: Any) -> None:
        self.temperature, self.limit, self.told = temperature, max_completion_length, told
        self.generation_kwargs: dict[str, Any] = {}
        self.synchronised, self.calls = 0, list[dict[str, Any]]()

    def sync_weights(self) -> None:
        """Count it."""
        self.synchronised += 1

    def generate(self, prompts: list[list[int]], images: None, num_generations: int) -> tuple[Any, ...]:
        """Ids, and the log-probability of each after temperature, as (rows, tokens, 1)."""
        self.calls.append(self.generation_kwargs)
        language_model, stop = LanguageModel(self.model, self.tokenizer, name="letters"), self.generation_kwargs["stop"]
        keys = [f"{len(self.calls)}/{row}" for row in range(len(prompts))]
        limits = {"temperature": self.temperature, "max_tokens": self.limit, "batch_size": 64}
        found = language_model.generate(prompts, [tuple(stop)] * len(prompts), keys=keys, **limits)
        found = [[*ids, 5] if ids[-1] not in language_model.ends and len(ids) < self.limit else ids for ids in found]
        rows = zip(prompts, found, strict=True)
        scores = [[[one] for one in logprobs(self.model, *row, self.temperature)] for row in rows]
        return prompts, found, scores, None


Engines = Callable[..., list[LetterEngine]]


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> Engines:
    """Put engines of a class where TRL makes its own; returns the list of those made."""

    def put(kind: type[LetterEngine] = LetterEngine) -> list[LetterEngine]:
        made: list[LetterEngine] = []

        def make(*, model: Any, processing_class: Any, **told: Any) -> LetterEngine:
            made.append(kind(**told))
            made[-1].model, made[-1].tokenizer = model, processing_class
            return made[-1]

        monkeypatch.setattr(grpo_trainer, "VLLMGeneration", make)
        monkeypatch.setattr(agent, "check_vllm", lambda params: None)
        return made

    return put


def test_what_vllm_sampled_is_what_is_trained(setup: Setup) -> None:
    """Ids, masks and log-probabilities stay aligned over turns, and requests of one call have their own stops."""
    params = AGENT.model_copy(update={"vllm": "colocate", "temperature": 0.7})
    model, tokenizer = load_model(setup.language_model)
    engine = LetterEngine(temperature=0.7, max_completion_length=6)
    engine.model, engine.tokenizer = model, tokenizer
    language_model, mixed = LanguageModel(model, tokenizer, name="letters"), replace(setup, pipeline=mixed_stops)
    game, trainer = (
        RolloutFunction(params, mixed, language_model, seed=0),
        SimpleNamespace(model=model, vllm_generation=engine),
    )
    rows = game([question.id for question in QUESTIONS for _ in range(8)], trainer)
    told = [kwargs["stop"] for kwargs in engine.calls]
    assert told == [["a"], ["d", "ef"], ["t"]] and engine.calls[0]["include_stop_str_in_output"]
    endings = set()
    columns = (rows[name] for name in ("prompt_ids", "completion_ids", "env_mask", "logprobs"))
    for prompt, ids, own, found in zip(*columns, strict=True):
        assert len(ids) == len(own) == len(found)
        expected = [value * mine for value, mine in zip(logprobs(model, prompt, ids, 0.7), own, strict=True)]
        assert found == pytest.approx(expected, abs=1e-4)
        first = own.index(0)
        assert "a" not in tokenizer.decode(ids[: first - 1]) or tokenizer.decode(prompt) not in "qe", "cut at its stop"
        endings.add((tokenizer.decode(prompt) in "qe", tokenizer.decode(ids[first - 1 : first])))
    assert (True, "a") in endings and (False, "d") in endings
    assert game.step == 0 and game.figures["own_tokens"] > 0


def test_a_run_with_vllm_learns_and_corrects_for_it(
    setup: Setup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engines: Engines
) -> None:
    """TRL's own loop with the engine replaced where TRL makes it: weights are sent, and the ratio is one."""
    seen: list[dict[str, float]] = []
    on_log = AgentCallback.on_log

    def listen(self: AgentCallback, args: Any, state: Any, control: Any, logs: Any = None, **rest: Any) -> None:
        seen.append({key: value for key, value in (logs or {}).items() if key.startswith("sampling/")})
        on_log(self, args, state, control, logs, **rest)

    monkeypatch.setattr(AgentCallback, "on_log", listen)
    made = engines()
    params = AGENT.model_copy(update={"vllm": "colocate", "vllm_memory": 0.4, "steps": 2})
    history = train(params, setup, tmp_path / "out", tmp_path / "work", nothing, 0)
    assert len(history) == 2 and made[0].synchronised == 2
    assert made[0].told["gpu_memory_utilization"] == 0.4 and made[0].told["mode"] == "colocate"
    ratios = [row["sampling/importance_sampling_ratio/mean"] for row in seen if row]
    assert ratios == pytest.approx([1.0] * len(ratios), abs=1e-3) and len(ratios) == 2


def test_a_ratio_is_a_tokens_and_its_episode_is_learnt_from(setup: Setup, tmp_path: Path, engines: Engines) -> None:
    class Doubtful(LetterEngine):
        def generate(self, **given: Any) -> tuple[Any, ...]:
            """One token of a call has a third of its chance, or less."""
            prompts, found, scores, rest = super().generate(**given)
            scores[0][0] = [scores[0][0][0] - 1.2]
            return prompts, found, scores, rest

    made = engines(Doubtful)
    params = AGENT.model_copy(update={"vllm": "colocate", "steps": 2})
    for row in train(params, setup, tmp_path / "out", tmp_path / "work", nothing, 0):
        calls, own = len(made[0].calls) / 2, row["own_tokens"] * 4 * 8
        assert row["capped_share"] == pytest.approx(calls / own)
        assert row["logprob_gap"] == pytest.approx(1.2 * calls / own, rel=1e-2)
        assert (row["is_ratio_min"], row["is_ratio_max"]) == (pytest.approx(1.0, abs=1e-2), 3.0)


def test_vllm_that_cannot_be_had_is_refused_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    server = AGENT.model_copy(update={"vllm": "server"})
    for installed, cuda, processes, line in (
        (False, True, 1, "needs the package vllm"),
        (True, False, 1, "needs a CUDA GPU"),
        (True, True, 2, "takes one trainer, found 2 processes"),
    ):
        monkeypatch.setattr("importlib.util.find_spec", lambda name, found=installed: found or None)
        monkeypatch.setattr("torch.cuda.is_available", lambda found=cuda: found)
        monkeypatch.setenv("WORLD_SIZE", str(processes))
        with pytest.raises(ParamsError, match=line) as error:
            check_vllm(server)
        assert "\n" not in str(error.value)
    check_vllm(AGENT)


GONE = "http://127.0.0.1:9"


@pytest.mark.parametrize(
    ("where", "kept", "error"),
    [
        ("__init__", None, requests.ConnectionError("The vLLM server can't be reached")),
        ("generate", 2, requests.ConnectionError("Connection refused")),
        ("sync_weights", 3, Exception('Request failed: 500, {"error": "dead"}')),
    ],
)
def test_a_vllm_server_that_goes_is_one_line_and_keeps_the_steps(
    setup: Setup, tmp_path: Path, engines: Engines, where: str, kept: int | None, error: Exception
) -> None:
    class Mortal(LetterEngine):
        def __init__(self, **told: Any) -> None:
            assert told["server_base_url"] == GONE
            if where == "__init__":
                raise error
            super().__init__(**told)
            processed = {"model_config": {"logprobs_mode": "processed_logprobs"}}
            self.vllm_client = SimpleNamespace(get_server_info=lambda: processed)
            setattr(self, where, self.die)

        def die(self, **given: Any) -> Any:
            if self.synchronised == 3:
                raise error
            return getattr(LetterEngine, where)(self, **given)

    engines(Mortal)
    there = {
        "vllm": "server",
        "server": ServerParams(urls=(GONE,)),
        "steps": 6,
        "checkpoints": CheckpointParams(every=100),
    }
    with pytest.raises(ServiceUnavailable, match=rf"{GONE} cannot be used: .*; start it as") as caught:
        train(AGENT.model_copy(update=there), setup, tmp_path / "out", tmp_path / "work", nothing, 0)
    assert "\n" not in str(caught.value)
    saved = [int(path.parent.name.rpartition("-")[2]) for path in (tmp_path / "work").rglob("state.json")]
    assert saved == ([kept] if kept else [])


def test_sending_weights_leaves_the_base_as_it_is(setup: Setup, tmp_path: Path) -> None:
    """By TRL's own loop over an adapter's weights, which merges and unmerges: in bfloat16 a base that drifts."""
    model = load_model(setup.language_model)[0]
    adapted = begin(model.to(torch.bfloat16), LoraParams(rank=4), 0)
    for name, weight in adapted.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.1)
    before = {name: weight.clone() for name, weight in adapted.named_parameters()}
    sent: dict[str, torch.Tensor] = {}
    engine = VLLMGeneration.__new__(VLLMGeneration)
    runner = SimpleNamespace(model=SimpleNamespace(load_weights=lambda pairs: sent.update(pairs)))
    inner = SimpleNamespace(model_executor=SimpleNamespace(driver_worker=SimpleNamespace(model_runner=runner)))
    engine.llm = SimpleNamespace(llm_engine=inner, reset_prefix_cache=lambda: None)
    engine.model, engine.mode, engine.enable_sleep_mode, engine.accelerator = adapted, "colocate", False, None
    engine._dist = SimpleNamespace(gather_params=lambda weights: nullcontext(), is_fsdp=False)
    params = AGENT.model_copy(update={"vllm": "colocate", "lora": LoraParams(rank=4)})
    attach_vllm(SimpleNamespace(vllm_generation=engine), params, SimpleNamespace(model=adapted), tmp_path)  # type: ignore
    for _ in range(5):
        engine.sync_weights()
    assert all(torch.equal(before[name], weight) for name, weight in adapted.named_parameters())
    adapted.merge_adapter(safe_merge=True)
    merged = adapted.get_base_model().state_dict()
    base = load_model(setup.language_model)[0].to(torch.bfloat16).state_dict()
    assert sent.keys() == dict(load_model(setup.language_model)[0].named_parameters()).keys()
    for name in (name for name in sent if "proj" in name):
        added, off = sent[name] - base[name], sent[name] - merged[name.replace(".weight", ".base_layer.weight")]
        assert off.abs().mean() < 0.05 * added.abs().mean()
