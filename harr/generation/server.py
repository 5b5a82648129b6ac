"""A generator behind any OpenAI-compatible address (vLLM, transformers serve, a hosted service)."""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import openai

from harr.errors import HarrError, ParamsError, ServiceUnavailable
from harr.params import Server
from harr.types import Generate


class ServerGenerator:
    """Chat completions from ``params.base_url``, up to ``params.concurrency`` at a time.

    An attempt may take ``timeout_seconds``. Time-outs, refused connections and the answers 408, 409,
    429 and 5xx are tried again ``retries`` times with growing, jittered pauses (the openai client).
    The key is read from the environment variable ``key_variable`` and appears in no message.
    """

    def __init__(self, params: Server) -> None:
        self._params = params
        self._key = os.environ.get(params.key_variable) or "no-key"
        self._client = openai.OpenAI(
            base_url=params.base_url,
            api_key=self._key,
            timeout=params.timeout_seconds,
            max_retries=params.retries,
        )

    def complete(self, requests: Sequence[Generate]) -> list[str]:
        """Return one completion per request, in order; an empty completion is ``""``.

        The first failure that retries did not mend ends the batch; requests not yet sent are dropped.

        Raises:
            ServiceUnavailable: no answer, or only 429 and 5xx answers, after all retries.
            ParamsError: the server refuses the request (address, model, key, length) or does not
                speak the protocol.
        """
        with ThreadPoolExecutor(self._params.concurrency, thread_name_prefix="generator") as pool:
            return list(pool.map(self._complete, requests))

    def _complete(self, request: Generate) -> str:
        address = self._params.base_url
        try:
            reply: Any = self._client.chat.completions.create(
                model=self._params.model,
                messages=cast(Any, list(request.messages)),
                temperature=self._params.temperature,
                max_tokens=self._params.max_tokens,
            )
        except openai.APIConnectionError as error:  # APITimeoutError is one of these
            waited = isinstance(error, openai.APITimeoutError)
            reason = f"no answer within {self._params.timeout_seconds:g} s" if waited else "connection failed"
            raise ServiceUnavailable(
                f"generator at {address}: {reason}, {self._params.retries + 1} attempts; "
                "start the server, or mend generator.base_url or generator.timeout_seconds in params.yaml"
            ) from None
        except openai.APIStatusError as error:
            raise self._refusal(error) from None
        except (openai.APIResponseValidationError, ValueError):
            reply = None  # a page that claims to be JSON
        choices = reply.choices if isinstance(reply, openai.types.chat.ChatCompletion) else None
        if not choices:
            raise ParamsError(
                f"generator at {address}: the answer is no chat completion; "
                "generator.base_url must be an OpenAI-compatible address, usually ending in /v1"
            )
        return choices[0].message.content or ""

    def _refusal(self, error: openai.APIStatusError) -> HarrError:
        """An HTTP error in the user's words; the key is cut out of the server's text."""
        said = " ".join(error.message.replace(self._key, "***").split())[:300]
        where = f"generator at {self._params.base_url}: HTTP {error.status_code} ({said})"
        if error.status_code in (408, 409, 429) or error.status_code >= 500:
            attempts = self._params.retries + 1
            return ServiceUnavailable(
                f"{where}, {attempts} attempts; look at the server's log, or lower generator.concurrency"
            )
        if error.status_code in (401, 403):
            return ParamsError(f"{where}; set the environment variable {self._params.key_variable} to a valid key")
        return ParamsError(
            f"{where}; check generator.base_url, generator.model ({self._params.model}) and generator.max_tokens"
        )
