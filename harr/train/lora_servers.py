"""vLLM servers that sample with the LoRA that learns: it goes to them as files, by HTTP (``train.vllm: adapter``)."""

import threading
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx

from harr.compute import distributed
from harr.errors import ParamsError
from harr.io.files import draft, fingerprint
from harr.params.servers import ServerParams
from harr.params.train import AgentParams
from harr.rag.generation.local_model import LanguageModel
from harr.rag.generation.sampler import Scored
from harr.services.openai_client import Service, is_not_found

if TYPE_CHECKING:
    from harr.services.openai_client import Client

AT_ONCE = 128
"""Number of requests that a server is sent at a time."""
PLAIN = {"top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0, "skip_special_tokens": False}
"""What a server might otherwise take from the model's folder: tokens are drawn from the model's own probabilities."""


class LoraServers:
    """Servers that are handed the LoRA of ``writer`` before every step; it stands where TRL has its engine.

    They need not share a machine with the trainer, only ``folder``, under the same name. A server that went away is
    asked again, and handed the LoRA anew if it was restarted meanwhile. Random numbers follow from the keys.

    Raises:
        ParamsError: a server does not know LoRA, or has another one's name. ServiceUnavailable: it stays away.
    """

    def __init__(self, params: AgentParams, server: ServerParams, writer: LanguageModel, folder: Path) -> None:
        self._params, self._writer, self._folder = params, writer, folder.absolute()
        self._name, self._lock = f"harr-{fingerprint(str(self._folder))}", threading.Lock()
        self._services = [
            Service(
                "train.vllm: adapter",
                server=server.model_copy(update={"urls": (f"{url.rstrip('/')}/v1",)}),
                model=self._name,
                refused="that it was started as docs/serving.md says",
            )
            for url in server.urls
        ]

    def room(self) -> int:
        """Return how many tokens of an episode the servers have room for."""
        found = [service.ask(lambda client: client.models.list().data[0]) for service in self._services]
        return min(getattr(model, "max_model_len", None) or self._writer.room for model in found)

    def sync_weights(self) -> None:
        """Write the LoRA, and let every server read it."""
        distributed.main_process_only(self._hand_out)

    def _hand_out(self) -> None:
        with draft(self._folder.with_suffix(".draft"), self._folder) as folder:
            self._writer.model.save_pretrained(folder, selected_adapters=["default"])
        for service in self._services:
            service.ask(self._load)

    def _load(self, client: "Client") -> Any:
        body = {"lora_name": self._name, "lora_path": str(self._folder), "load_inplace": True}
        return client.post("/load_lora_adapter", cast_to=httpx.Response, body=body)

    def generate(
        self, contexts: Sequence[Sequence[int]], stops: Sequence[tuple[str, ...]], keys: Sequence[str]
    ) -> list[list[int]]:
        """Go on from every context, and return :class:`Scored` ids, in order, ended as the sampler's own.

        Neighbours go to the same server, which then has read the beginning that they share.
        """
        count = len(self._services)
        homes = [self._services[row * count // len(contexts)] for row in range(len(contexts))]
        with ThreadPoolExecutor(AT_ONCE * count, thread_name_prefix="vllm") as pool:
            return list(pool.map(self._write, homes, contexts, stops, keys))

    def _write(self, service: Service, context: Sequence[int], stop: tuple[str, ...], key: str) -> list[int]:
        ends = sorted(self._writer.ends)
        more = {**PLAIN, "return_token_ids": True, "include_stop_str_in_output": True, "stop_token_ids": ends}

        def complete(client: "Client") -> Any:
            return client.completions.create(
                model=self._name,
                prompt=list(context),
                max_tokens=self._params.max_tokens,
                temperature=self._params.temperature,
                stop=list(stop) or None,
                seed=zlib.crc32(key.encode()),
                logprobs=0,
                extra_body=more,
            )

        def attempt(client: "Client") -> Any:
            try:
                return complete(client)
            except Exception as error:
                if not is_not_found(error):
                    raise
                # It was restarted, and knows its base alone.
                with self._lock:
                    self._load(client)
                return complete(client)

        try:
            choice = service.ask(attempt).choices[0]
            ids, logprobs = choice.token_ids, choice.logprobs.token_logprobs
            size = self._writer.ended(ids, stop)
        except (AttributeError, LookupError, TypeError):
            raise ParamsError(
                f"{service.where}: the answer has no token ids or log-probabilities; found another server than vLLM, "
                "or one before 0.10.2; start it as docs/serving.md says"
            ) from None
        return Scored.of(ids[:size], logprobs[:size])
