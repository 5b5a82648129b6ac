"""A generator behind any OpenAI-compatible address (vLLM, transformers serve, a hosted service)."""

import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import openai

from harr.errors import HarrError, ParamsError, ServiceUnavailable
from harr.params import Server
from harr.types import Generate

LONGEST_PAUSE = 8.0
AGAIN = (408, 409, 429)
"""Answers, beside 5xx, that may be better next time."""


class ServerGenerator:
    """Completions from ``params.base_url``, up to ``params.concurrency`` at a time.

    An attempt may take ``timeout_seconds``. Time-outs, refused connections and the answers 408, 409,
    429 and 5xx are tried again, with growing, jittered pauses, until ``deadline_seconds`` are over: a
    server may be restarted meanwhile. Every request carries the same ``seed``, so equal requests of a
    batch are asked once. The key is read from the environment variable ``key_variable`` and appears in
    no message.
    """

    def __init__(self, params: Server, *, seed: int = 0) -> None:
        self._params = params
        self._seed = seed
        self._key = os.environ.get(params.key_variable) or "no-key"
        self._client = openai.OpenAI(
            base_url=params.base_url, api_key=self._key, timeout=params.timeout_seconds, max_retries=0
        )
        self._usage: Counter[str] = Counter(requests=0, retries=0, prompt_tokens=0, completion_tokens=0)
        self._lock = threading.Lock()

    def usage(self) -> dict[str, float]:
        """Requests, retries and tokens since the start."""
        with self._lock:
            return {name: float(count) for name, count in self._usage.items()}

    def complete(self, requests: Sequence[Generate]) -> list[str]:
        """Return one completion per request, in order; an empty completion is ``""``.

        The first failure that retries did not mend ends the batch; requests not yet sent are dropped.

        Raises:
            ServiceUnavailable: no answer, or only 429 and 5xx answers, until the deadline.
            ParamsError: the server refuses the request (address, model, key, length) or does not
                speak the protocol.
        """
        keys = [(tuple(tuple(m.items()) for m in r.messages), r.prompt, r.stop) for r in requests]
        distinct = dict(zip(keys, requests, strict=True))
        with ThreadPoolExecutor(self._params.concurrency, thread_name_prefix="generator") as pool:
            texts = dict(zip(distinct, pool.map(self._complete, distinct.values()), strict=True))
        return [texts[key] for key in keys]

    def _complete(self, request: Generate) -> str:
        reply: Any = self._persist(lambda: self._ask(request))
        choices = getattr(reply, "choices", None)
        if not isinstance(reply, openai.types.chat.ChatCompletion | openai.types.Completion) or not choices:
            raise ParamsError(
                f"generator at {self._params.base_url}: the answer is no completion; "
                "generator.base_url must be an OpenAI-compatible address, usually ending in /v1"
            )
        self._count(
            requests=1,
            prompt_tokens=reply.usage.prompt_tokens if reply.usage else 0,
            completion_tokens=reply.usage.completion_tokens if reply.usage else 0,
        )
        return (choices[0].text if isinstance(reply, openai.types.Completion) else choices[0].message.content) or ""

    def _ask(self, request: Generate) -> Any:
        """One attempt: raw text goes to /completions, messages to /chat/completions."""
        options: dict[str, Any] = {
            "model": self._params.model,
            "temperature": self._params.temperature,
            "max_tokens": self._params.max_tokens,
            "seed": self._seed,
        }
        if request.stop:
            options["stop"] = list(request.stop)
        try:
            if request.prompt:
                return self._client.completions.create(prompt=request.prompt, **options)
            return self._client.chat.completions.create(messages=cast(Any, list(request.messages)), **options)
        except (openai.APIResponseValidationError, ValueError):
            return None  # a page that claims to be JSON

    def _persist(self, attempt: Callable[[], Any]) -> Any:
        """Try until it works, is refused for good, or the deadline is over."""
        address, deadline = self._params.base_url, time.monotonic() + self._params.deadline_seconds
        pause = 0.5
        while True:
            try:
                return attempt()
            except openai.APIConnectionError as error:  # APITimeoutError is one of these
                waited = isinstance(error, openai.APITimeoutError)
                reason = f"no answer within {self._params.timeout_seconds:g} s" if waited else "connection failed"
                failure: HarrError = ServiceUnavailable(
                    f"generator at {address}: {reason}, tried for {self._params.deadline_seconds:g} s; start the "
                    "server, or mend generator.base_url, timeout_seconds or deadline_seconds in params.yaml"
                )
            except openai.APIStatusError as error:
                failure = self._refusal(error)
            sleep = pause * random.uniform(0.5, 1.5)
            if not isinstance(failure, ServiceUnavailable) or time.monotonic() + sleep > deadline:
                raise failure from None
            self._count(retries=1)
            time.sleep(sleep)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _count(self, **counts: int) -> None:
        with self._lock:
            self._usage.update(counts)

    def _refusal(self, error: openai.APIStatusError) -> HarrError:
        """An HTTP error in the user's words; the key is cut out of the server's text."""
        said = " ".join(error.message.replace(self._key, "***").split())[:300]
        where = f"generator at {self._params.base_url}: HTTP {error.status_code} ({said})"
        if error.status_code in AGAIN or error.status_code >= 500:
            return ServiceUnavailable(
                f"{where}, tried for {self._params.deadline_seconds:g} s; "
                "look at the server's log, or lower generator.concurrency"
            )
        if error.status_code in (401, 403):
            return ParamsError(f"{where}; set the environment variable {self._params.key_variable} to a valid key")
        return ParamsError(
            f"{where}; check generator.base_url, generator.model ({self._params.model}) and generator.max_tokens"
        )
