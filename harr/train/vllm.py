"""vLLM servers that sample with the current LoRA, loaded from files (``train.server``)."""

import shutil
import threading
import zlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import httpx

from harr.compute import distributed
from harr.errors import ModelError, ParamsError
from harr.io.files import draft, fingerprint
from harr.params.servers import ServerParams
from harr.params.train import AgentParams
from harr.rag.generation.local_model import LanguageModel
from harr.rag.generation.sampler import Scored
from harr.services.openai_client import Service, is_not_found

if TYPE_CHECKING:
    from harr.services.openai_client import Client

PLAIN = {"top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0, "skip_special_tokens": False}
"""Sampling options: the model's own probabilities, whatever the defaults in its folder."""

GAP = 0.5
"""Maximum gap between sampler and trainer, in nats per token: bfloat16 rounding gives .03, one-step-old weights .9."""
CAP = 3.0
"""Maximum importance ratio of a token."""


def attach_vllm(trainer: Any, params: AgentParams, language_model: LanguageModel, folder: Path) -> None:
    """Let the servers of ``train.server`` sample for TRL's trainer, and limit episodes to their context.

    LoRAs are written under ``folder``.
    """
    if params.server:
        servers = LoraServers(params, params.server, language_model, folder / "loras")
        language_model.room = min(language_model.room, distributed.main_process_only(servers.room))
        trainer.use_vllm, trainer.vllm_generation, trainer._last_loaded_step = True, servers, -1


def check_gap(row: Mapping[str, Any]) -> None:
    """Stop if the sampler's log-probabilities come from another model.

    Raises:
        ModelError: they differ from the trainer's by more than ``GAP`` nats per token, on average.
    """
    if (gap := row.get("logprob_gap", 0.0)) > GAP:
        raise ModelError(
            f"train.server: log-probabilities of what vLLM wrote differ from the trainer's by {gap:.2f} nats a token, "
            f"expected at most {GAP}: it has other weights, or no --logprobs-mode processed_logprobs; see "
            "docs/serving.md"
        )


class LoraServers:
    """Servers that load the LoRA of ``language_model`` before every step, instead of TRL's engine.

    They need not share a machine with the trainer, only ``folder``, under the same path. Requests to an unavailable
    server are retried; a restarted server loads the LoRA again. Random numbers follow from the keys.

    vLLM caches a prompt's keys and values by the LoRA's name and path, so every LoRA gets its own, even after resuming.

    Raises:
        ParamsError: a server does not support LoRA. ServiceUnavailable: it stays unavailable.
    """

    def __init__(self, params: AgentParams, server: ServerParams, language_model: LanguageModel, folder: Path) -> None:
        self._params, self._language_model, self._folder = params, language_model, folder.absolute()
        self._concurrency = server.concurrency * len(server.urls)
        self._prefix, self._lock = f"harr-{fingerprint(str(self._folder))}-", threading.Lock()
        self._name = ""
        self._services = [
            Service(
                "train.server",
                server=server.model_copy(update={"urls": (f"{url.rstrip('/')}/v1",)}),
                model=self._prefix,
                refused="that it was started as docs/serving.md says",
            )
            for url in server.urls
        ]

    def room(self) -> int:
        """Return the maximum number of tokens that an episode can have on the servers."""
        models = [service.ask(lambda client: client.models.list().data[0]) for service in self._services]
        return min(getattr(model, "max_model_len", None) or self._language_model.room for model in models)

    def sync_weights(self) -> None:
        """Write the LoRA under a new name, load it into every server, and remove the previous one."""
        self._name = distributed.main_process_only(self._send_adapter)

    def _send_adapter(self) -> str:
        self._name = f"{self._prefix}{uuid4().hex[:8]}"
        with draft(self._folder.with_suffix(".draft"), self._folder / self._name) as folder:
            self._language_model.model.save_pretrained(folder, selected_adapters=["default"])
        for service in self._services:
            service.ask(self._load)
        for folder in self._folder.iterdir():
            if folder.name != self._name:
                shutil.rmtree(folder)
        return self._name

    def _load(self, client: "Client") -> None:
        """Load the LoRA into a server that does not have it, and unload this run's earlier ones."""
        names = [model.id for model in client.models.list() if model.id.startswith(self._prefix)]
        if self._name not in names:
            body = {"lora_name": self._name, "lora_path": str(self._folder / self._name)}
            client.post("/load_lora_adapter", cast_to=httpx.Response, body=body)
        for name in names:
            if name != self._name:
                client.post("/unload_lora_adapter", cast_to=httpx.Response, body={"lora_name": name})

    def generate(
        self, contexts: Sequence[Sequence[int]], stops: Sequence[tuple[str, ...]], keys: Sequence[str]
    ) -> list[list[int]]:
        """Continue every context; return :class:`Scored` ids, in order, that end as the local sampler's do.

        Neighbouring contexts go to the same server, which caches their common prefix.
        """
        count = len(self._services)
        services = [self._services[row * count // len(contexts)] for row in range(len(contexts))]
        with ThreadPoolExecutor(self._concurrency, thread_name_prefix="vllm") as pool:
            return list(pool.map(self._write, services, contexts, stops, keys))

    def _write(self, service: Service, context: Sequence[int], stop: tuple[str, ...], key: str) -> list[int]:
        ends = sorted(self._language_model.ends)
        options = {**PLAIN, "return_token_ids": True, "include_stop_str_in_output": True, "stop_token_ids": ends}

        def complete(client: "Client") -> Any:
            return client.completions.create(
                model=self._name,
                prompt=list(context),
                max_tokens=self._params.max_tokens,
                temperature=self._params.temperature,
                stop=list(stop) or None,
                seed=zlib.crc32(key.encode()),
                logprobs=0,
                extra_body=options,
            )

        def attempt(client: "Client") -> Any:
            try:
                return complete(client)
            except Exception as error:
                if not is_not_found(error):
                    raise
                # The server was restarted and has no LoRA.
                with self._lock:
                    self._load(client)
                return complete(client)

        try:
            choice = service.ask(attempt).choices[0]
            ids, logprobs = choice.token_ids, choice.logprobs.token_logprobs
            size = self._language_model.row_length(ids, stop)
        except (AttributeError, LookupError, TypeError):
            raise ParamsError(
                f"{service.where}: the answer has no token ids or log-probabilities; found another server than vLLM, "
                "or one before 0.10.2; start it as docs/serving.md says"
            ) from None
        return Scored.of(ids[:size], logprobs[:size])
