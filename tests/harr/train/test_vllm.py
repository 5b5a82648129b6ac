"""``train.server``: a LoRA goes to servers as files; their texts and log-probabilities are trained on.

The servers are stand-ins that sample with the LoRA they read, with vLLM 0.32's addresses, fields and refusals as
recorded; ``tests/test_vllm.py`` has the same run on a real vLLM.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from letters import letters_setup, logprobs, nothing, save_letters
from peft import PeftModel
from serving import running, send_json

from harr.errors import ModelError, ParamsError, ServiceUnavailable
from harr.params.servers import ServerParams
from harr.params.train import AgentParams
from harr.params.train_facts import LoraParams, ValidationParams
from harr.rag.generation.local_model import LanguageModel, load_model
from harr.rag.setup import Setup
from harr.train.agent import check_processes, train


class Vllm:
    """A server of one base model.

    ``forgets_at``: number of the completion at which it was restarted; ``doubts``: nats by which it understates the
    probability of the first token of completions.

    It keeps sampling with what it first read under a LoRA's name and path, whatever is loaded there later, as vLLM's
    prefix cache does for shared prompt tokens.
    """

    def __init__(self, base: str, forgets_at: int = -1, doubts: Sequence[float] = ()) -> None:
        self.base, self.forgets_at, self.doubts = base, forgets_at, iter(doubts)
        self.loras: dict[str, LanguageModel] = {}
        self.cached: dict[tuple[str, str], LanguageModel] = {}
        self.loads, self.asked = 0, list[dict[str, Any]]()

    def answer(self, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        if path == "/v1/load_lora_adapter":
            name, path = body["lora_name"], body["lora_path"]
            assert Path(path).is_absolute()
            if name in self.loras and not body.get("load_inplace"):
                said = f"The lora adapter '{name}' has already been loaded."
                return 400, {"error": {"message": said, "type": "InvalidUserInput", "param": None, "code": 400}}
            model, tokenizer = load_model(self.base)
            read = LanguageModel(PeftModel.from_pretrained(model, path), tokenizer, name="stand-in")
            self.loras[name] = self.cached.setdefault((name, path), read)  # like the prefix cache
            self.loads += 1
            return 200, f"Success: LoRA adapter '{name}' added successfully."
        if path == "/v1/unload_lora_adapter":
            del self.loras[body["lora_name"]]
            return 200, f"Success: LoRA adapter '{body['lora_name']}' removed successfully."
        self.asked.append(body)
        if len(self.asked) == self.forgets_at:
            self.loras.clear()
            self.cached.clear()
        if body["model"] not in self.loras:
            said = f"The model `{body['model']}` does not exist. Valid aliases: tiny."
            return 404, {"error": {"message": said, "type": "NotFoundError", "param": "model", "code": 404}}
        return 200, self.completion(body, self.loras[body["model"]])

    def completion(self, body: dict[str, Any], language_model: LanguageModel) -> dict[str, Any]:
        context, limits = body["prompt"], {"max_tokens": body["max_tokens"], "batch_size": 1}
        (ids,) = language_model.generate(
            [context], [tuple(body["stop"])], keys=[str(body["seed"])], temperature=body["temperature"], **limits
        )
        scores = logprobs(language_model.model, context, ids, body["temperature"])
        scores[0] -= next(self.doubts, 0.0)
        choice = {"index": 0, "text": language_model.decode(ids), "finish_reason": "stop", "stop_reason": None}
        choice |= {"logprobs": {"token_logprobs": scores, "tokens": [], "text_offset": [], "top_logprobs": []}}
        choice |= {"token_ids": ids, "prompt_token_ids": context}
        return {"id": "cmpl-1", "object": "text_completion", "created": 0, "model": body["model"], "choices": [choice]}


@contextmanager
def served(vllm: Vllm) -> Iterator[str]:
    """The server on a loopback port."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            assert self.path == "/v1/models"
            card = {"object": "model", "created": 0, "owned_by": "vllm"}
            cards = [{"id": "tiny", "max_model_len": 48} | card, *({"id": name} | card for name in vllm.loras)]
            send_json(self, 200, {"object": "list", "data": cards})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            send_json(self, *vllm.answer(self.path, body))

        def log_message(self, *_: object) -> None: ...

    with running(Handler) as address:
        yield address


def params(*urls: str, deadline: float = 900.0, **changes: Any) -> AgentParams:
    values = {"steps": 2, "questions_per_step": 4, "group_size": 4, "episodes_per_pass": 16, "max_tokens": 6}
    values |= {"optimizer": {"learning_rate": 2e-2}, "temperature": 0.8, "lora": LoraParams(rank=8, alpha=64)}
    server = ServerParams(name="gpus", urls=urls, deadline_seconds=deadline)
    return AgentParams(method="agent", server=server, **(values | changes))


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    return letters_setup(tmp_path / "letters")


def test_two_servers_share_a_run_and_one_may_be_restarted(setup: Setup, tmp_path: Path) -> None:
    servers = [Vllm(setup.language_model), Vllm(setup.language_model, forgets_at=20)]
    with ExitStack() as stack:
        urls = [stack.enter_context(served(server)) for server in servers]
        history = train(params(*urls, steps=3), setup, tmp_path / "out", tmp_path / "work", nothing, 0)
    assert max(row["logprob_gap"] for row in history) < 1e-3, "also after two updates: the LoRA is the newest"
    assert all(row["is_ratio_mean"] == pytest.approx(1.0, abs=1e-2) for row in history)
    assert [server.loads for server in servers] == [3, 4]
    assert [len(server.loras) for server in servers] == [1, 1], "the LoRAs before are unloaded"
    assert len(list((tmp_path / "work").glob("**/adapter_model.safetensors"))) == 1, "and their folders removed"
    assert all(len(server.asked) > 3 * 8 for server in servers)
    sent = servers[0].asked[0]
    assert (sent["temperature"], sent["top_p"], sent["top_k"], sent["min_p"]) == (0.8, 1.0, -1, 0.0)
    assert (sent["logprobs"], sent["return_token_ids"], sent["include_stop_str_in_output"]) == (0, True, True)
    assert len({str(body["seed"]) for body in servers[0].asked}) > 24, "rows have random numbers of their own"
    assert (tmp_path / "out/adapter_model.safetensors").exists()


def test_the_same_run_draws_the_same_and_an_episode_has_the_servers_room(setup: Setup, tmp_path: Path) -> None:
    rows = []
    for name in "ab":
        server = Vllm(setup.language_model)
        with served(server) as url:
            history = train(params(url, steps=1), setup, tmp_path / name, tmp_path / f"work-{name}", nothing, 0)
        rows.append([row["reward_mean"] for row in history])
        assert max(len(body["prompt"]) + 6 for body in server.asked) <= 48
    assert rows[0] == pytest.approx(rows[1], abs=1e-6)


def test_a_ratio_is_a_tokens_and_its_episode_is_learnt_from(setup: Setup, tmp_path: Path) -> None:
    with served(Vllm(setup.language_model, doubts=[1.2])) as url:
        (row,) = train(params(url, steps=1), setup, tmp_path / "out", tmp_path / "work", nothing, 0)
    own = row["own_tokens"] * 16
    assert row["capped_share"] == pytest.approx(1 / own) and row["logprob_gap"] == pytest.approx(1.2 / own, rel=1e-2)
    assert (row["is_ratio_min"], row["is_ratio_max"]) == (pytest.approx(1.0, abs=1e-2), 3.0)


def test_a_server_with_other_weights_ends_the_run_and_the_step_is_not_kept(setup: Setup, tmp_path: Path) -> None:
    other = save_letters(tmp_path / "other", spread=0.9)
    with (
        served(Vllm(str(other))) as url,
        pytest.raises(ModelError, match=r"differ from the trainer's by \d\.\d+ nats a token, expected at most 0\.5"),
    ):
        train(params(url), setup, tmp_path / "out", tmp_path / "work", nothing, 0)
    assert not list((tmp_path / "work").rglob("state.json")) and not (tmp_path / "out").exists()


def test_a_server_that_is_not_there_or_takes_no_lora_is_one_line(
    setup: Setup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served(Vllm(setup.language_model)) as url:
        gone = url
    with pytest.raises(ServiceUnavailable, match=r"connection failed, tried for 0\.1 s .* servers\.gpus") as caught:
        train(params(gone, deadline=0.1), setup, tmp_path / "out", tmp_path / "work", nothing, 0)
    assert gone in str(caught.value) and "\n" not in str(caught.value)
    plain = Vllm(setup.language_model)
    monkeypatch.setattr(plain, "answer", lambda path, body: (404, {"detail": "Not Found"}))
    with served(plain) as url, pytest.raises(ParamsError, match=r"HTTP 404 .*started as docs/serving\.md says"):
        train(params(url), setup, tmp_path / "out", tmp_path / "work", nothing, 0)


def test_what_needs_a_whole_model_is_refused_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    check_processes(params("http://127.0.0.1:9"))
    for change in ({"validation": ValidationParams(every=1)}, {"quantization": "nf4"}, {"server": None}):
        with pytest.raises(ParamsError, match=r"or FSDP with train\.server, validation.every: 0"):
            check_processes(params("http://127.0.0.1:9").model_copy(update=change))
