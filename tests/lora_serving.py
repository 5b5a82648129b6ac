"""A stand-in for vLLM's servers that are handed a LoRA.

It has vLLM 0.32's addresses, fields and refusals, as recorded from one, and samples with the LoRA that it read.
``tests/test_vllm.py`` has the same run on a real vLLM.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from serving import running

from harr.params.train import AgentParams
from harr.params.train_facts import LoraParams
from harr.rag.generation.local_model import LanguageModel, load_model


class Vllm:
    """A server of one base model; ``forgets_at``: number of the completion at which it was restarted."""

    def __init__(self, base: str, forgets_at: int = -1) -> None:
        self.base, self.forgets_at = base, forgets_at
        self.loras: dict[str, LanguageModel] = {}
        self.loads, self.asked = 0, list[dict[str, Any]]()

    def answer(self, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        if path == "/v1/load_lora_adapter":
            assert body["load_inplace"] and Path(body["lora_path"]).is_absolute()
            model, tokenizer = load_model(self.base)
            model = PeftModel.from_pretrained(model, body["lora_path"])
            self.loras[body["lora_name"]] = LanguageModel(model, tokenizer, name="stand-in")
            self.loads += 1
            return 200, f"Success: LoRA adapter '{body['lora_name']}' added successfully."
        self.asked.append(body)
        if len(self.asked) == self.forgets_at:
            self.loras.clear()
        if body["model"] not in self.loras:
            said = f"The model `{body['model']}` does not exist. Valid aliases: tiny."
            return 404, {"error": {"message": said, "type": "NotFoundError", "param": "model", "code": 404}}
        return 200, self.completion(body, self.loras[body["model"]])

    def completion(self, body: dict[str, Any], writer: LanguageModel) -> dict[str, Any]:
        context, limits = body["prompt"], {"max_tokens": body["max_tokens"], "batch_size": 1}
        (ids,) = writer.generate(
            [context], [tuple(body["stop"])], keys=[str(body["seed"])], temperature=body["temperature"], **limits
        )
        with torch.no_grad():
            logits = writer.model(torch.tensor([context + ids])).logits[0, len(context) - 1 : -1]
        scores = (logits / body["temperature"]).log_softmax(-1).gather(-1, torch.tensor(ids)[:, None])[:, 0].tolist()
        choice = {"index": 0, "text": writer.decode(ids), "finish_reason": "stop", "stop_reason": None}
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
            card = {"id": "tiny", "object": "model", "created": 0, "owned_by": "vllm", "max_model_len": 48}
            self.reply(200, {"object": "list", "data": [card]})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self.reply(*vllm.answer(self.path, body))

        def reply(self, status: int, value: Any) -> None:
            text = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None: ...

    with running(Handler) as address:
        yield address


def params(*urls: str, **changes: Any) -> AgentParams:
    values = {"steps": 2, "questions_per_step": 4, "group_size": 4, "episodes_per_pass": 16, "max_tokens": 6}
    values |= {"learning_rate": 2e-2, "temperature": 0.8, "lora": LoraParams(rank=8, alpha=64)}
    return AgentParams(method="agent", vllm="adapter", vllm_urls=list(urls), **(values | changes))
