"""A generator behind any OpenAI-compatible address (vLLM, transformers serve, a hosted service)."""

import threading
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from harr.errors import ParamsError, one_line
from harr.params.generator import ServedParams
from harr.services.openai_client import ContextLengthExceeded, Service
from harr.types import ContextFull, Generate, PromptTooLong, TruncatedCompletion


class ServerGenerator:
    """A generator that asks the server of ``params``, up to its ``concurrency`` requests at a time.

    Failed attempts are retried as :class:`harr.services.openai_client.Service` describes. Every request carries the
    same ``seed``, so equal requests of a batch are sent once. A prompt longer than the model's context gets an empty
    completion (:class:`harr.types.PromptTooLong`), which is counted and does not end the run. A prompt that leaves less
    room than requested is counted as ``no_room``: vLLM then writes what fits, which shows only in its token count. A
    reply of several tokens without text is counted as ``no_text``: the model thought until its limit.
    """

    def __init__(self, params: ServedParams, *, seed: int = 0, name: str = "generator") -> None:
        """Connect to the server of ``params``; errors name the section ``name`` of params.yaml."""
        self._params = params
        self._seed = seed
        self._limited = bool({"max_tokens", "max_completion_tokens"} & params.extra_body.keys())
        self._service = Service(name, server=params.server, model=params.model)
        counted = ("requests", "prompt_tokens", "completion_tokens", "too_long", "no_room", "no_text")
        self._usage = Counter(dict.fromkeys(counted, 0))
        self._lock = threading.Lock()

    def usage(self) -> dict[str, float]:
        """Return counts of requests, retries, time-outs, tokens, and prompts that left no room or too little."""
        failures = {"retries": self._service.retries, "timeouts": self._service.timeouts}
        with self._lock:
            counts = {"requests": 0, **failures, **self._usage}
        return {name: float(count) for name, count in counts.items()}

    def complete(self, requests: Sequence[Generate]) -> list[str]:
        """Return one completion per request, in order; an empty completion is ``""``.

        The first failure that outlasts its retries ends the batch; requests not yet sent are dropped.

        Raises:
            ServiceUnavailable: no answer, or only 429 and 5xx answers, until the deadline.
            ParamsError: the server refuses the request (address, model, key) or does not speak the protocol.
        """
        keys = [(tuple(tuple(m.items()) for m in r.messages), r.prompt, r.stop) for r in requests]
        distinct = dict(zip(keys, requests, strict=True))
        with ThreadPoolExecutor(self._params.server.concurrency, thread_name_prefix="generator") as pool:
            texts = dict(zip(distinct, pool.map(self._complete, distinct.values()), strict=True))
        return [texts[key] for key in keys]

    def _complete(self, request: Generate) -> str:
        """Send one request: raw text goes to /completions, messages to /chat/completions."""
        options: dict[str, Any] = {
            "model": self._params.model,
            "temperature": self._params.temperature,
            "max_tokens": self._params.max_tokens,
            "seed": self._seed,
            "extra_body": self._params.extra_body,
        }
        if request.stop:
            options["stop"] = list(request.stop)
        messages: Any = list(request.messages)
        try:
            if request.prompt:
                reply = self._service.ask(lambda client: client.completions.create(prompt=request.prompt, **options))
            else:
                reply = self._service.ask(lambda client: client.chat.completions.create(messages=messages, **options))
        except ContextLengthExceeded as error:
            with self._lock:
                self._usage.update(requests=1, too_long=1)
            return PromptTooLong.of("", error.reason)
        text = _text(reply, raw=bool(request.prompt))
        if text is None:
            remedy = f"{self._params.server.place}.urls must be an OpenAI-compatible address, usually ending in /v1"
            if said := getattr(reply, "error", None):  # gateways send it with a success status
                remedy = f"it says {one_line(said)}"
            raise ParamsError(f"{self._service.where}: the answer is no completion; {remedy}")
        usage = getattr(reply, "usage", None)
        read, written = (_count(getattr(usage, f"{kind}_tokens", 0)) for kind in ("prompt", "completion"))
        cut_short = (
            isinstance(text, TruncatedCompletion) and not self._limited and 0 < written < self._params.max_tokens
        )
        counts = {"prompt_tokens": read, "completion_tokens": written}
        with self._lock:
            self._usage.update(requests=1, **counts, no_room=int(cut_short), no_text=int(not text and written > 1))
        if cut_short:
            room = f"room for {written} of {self._params.max_tokens} tokens after {read}"
            return ContextFull.of(text, f"{self._service.where}: {room}")
        return text


class ServerSamplers:
    """Samplers of a language model behind a server: a generator per temperature, created at first use.

    Equal prompts of a batch get one text; those that LeReT compares differ by their demonstrations.
    """

    def __init__(self, params: ServedParams, *, max_tokens: int, seed: int, name: str) -> None:
        """Store ``params`` of the server; errors name the section ``name`` of params.yaml."""
        self.opened: dict[float, ServerGenerator] = {}
        self._params, self._seed, self._name = params.model_copy(update={"max_tokens": max_tokens}), seed, name

    def __call__(self, temperature: float) -> ServerGenerator:
        """Return the generator for a temperature."""
        if temperature not in self.opened:
            params = self._params.model_copy(update={"temperature": temperature})
            self.opened[temperature] = ServerGenerator(params, seed=self._seed, name=self._name)
        return self.opened[temperature]


def _count(value: Any) -> int:
    """Return a token count; 0 for anything else that a server sends."""
    return value if type(value) is int and 0 <= value < 1 << 40 else 0


def _text(reply: Any, *, raw: bool) -> str | None:
    """Return the text of an answer, null counting as empty; None for an answer without text.

    The text is a :class:`harr.types.TruncatedCompletion` if the server reached its limit. Lone surrogates, which UTF-8
    cannot encode, become "?".
    """
    try:
        choice = reply.choices[0]
        text = choice.text if raw else choice.message.content or ""
    except (AttributeError, LookupError, TypeError):
        return None
    if not isinstance(text, str):
        return None
    text = text.encode("utf-8", "replace").decode()
    return TruncatedCompletion(text) if getattr(choice, "finish_reason", "") == "length" else text
