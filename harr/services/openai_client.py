"""Client of an OpenAI-compatible server that retries until an answer, a permanent refusal, or a deadline."""

import os
import re
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx
from tqdm import tqdm

from harr.errors import HarrError, ParamsError, ServiceUnavailable, bare, one_line
from harr.io.retry import is_transient, retry, unavailable
from harr.params.servers import ServerParams
from harr.services.failures import FIRST_SECONDS, connection_remedy

if TYPE_CHECKING:  # importing it takes half a second, needed only to call a server
    from openai import APIStatusError, OpenAI

    Client = OpenAI

LONGEST_WAIT = 3600.0
"""Maximum seconds of a server's Retry-After that are respected."""
REST_SECONDS = 30.0
"""Seconds for which an address that did not answer is avoided if there are others."""
SHORTEST_SECRET = 8
"""Minimum length of a key that is cut out of errors; a placeholder such as EMPTY may be a word in them."""
TOO_LONG = re.compile(
    r"('max_tokens' or 'max_completion_tokens' is too large: \d+\. )?This model's maximum context length is \d"
    r"|You passed \d+ input (tokens|characters) and requested \d+ output tokens\. However, the model's context length"
    r"|The (\w+ )?prompt \((total )?length \d+\) is (too long|longer than the maximum model length)"
    r"|The input \(\d+ tokens\) is longer than the model's context length"
    r"|max_tokens must be at least 1, got (0|-\d+)\b"
)
"""Beginnings of a 400 answer to an overlong prompt: OpenAI, vLLM (old and new), SGLang. OpenAI also has a code.

The last is vLLM's answer to a prompt of exactly its maximum length: we request at least one token.
"""


class TooManyRequests(ServiceUnavailable):
    """A server answers 429 or 5xx, and asks for a pause of ``wait_seconds``."""

    def __init__(self, text: str, wait_seconds: float) -> None:
        super().__init__(text)
        self.wait_seconds = wait_seconds


class NobodyListens(ServiceUnavailable):
    """A connection to a server was refused."""


class ContextLengthExceeded(ParamsError):
    """A prompt exceeds the model's context; ``reason`` names the server and quotes it."""

    def __init__(self, text: str, reason: str) -> None:
        super().__init__(text)
        self.reason = reason


@dataclass
class Address:
    """One address of a service: its client, how many attempts are in flight there, and until when it rests."""

    client: "Client"
    where: str
    load: int = 0
    rests_until: float = 0.0


class Service:
    """Answers of a server named in section ``name`` of params.yaml; errors are in that section's terms.

    A read may take ``timeout_seconds``. Time-outs, refused connections and the answers 408, 409, 429 and 5xx are
    retried, with growing, jittered pauses, until ``deadline_seconds`` are over: a server may be restarting. A refused
    connection to one that never answered is retried for ``FIRST_SECONDS``. Of a model's several addresses the least
    loaded is used; one that does not answer rests, which is printed, and the attempt is made
    elsewhere. ``retries`` and ``timeouts`` are counts.

    The key is read from the environment variable ``key_variable``; no message contains it, or a password in an address.
    """

    def __init__(
        self,
        name: str,
        *,
        server: ServerParams,
        model: str,
        refused: str = "",
    ) -> None:
        """Prepare the clients without connecting; ``refused`` names what may be wrong if a request is refused."""
        self._server = server
        self._refused = refused or f"{server.place}.urls, {name}.model ({model}) and {name}.max_tokens"
        self._timeout, self._deadline = server.timeout_seconds, server.deadline_seconds
        key = os.environ.get(server.key_variable, "").strip()  # read from a file, it may end with a line break
        if not (key.isascii() and key.isprintable()):
            raise ParamsError(
                f"the environment variable {server.key_variable} holds letters that no key has; set it again"
            )
        self._secret = key if len(key) >= SHORTEST_SECRET else ""
        http: Any = httpx.Client(
            timeout=self._timeout, follow_redirects=False, limits=httpx.Limits(max_connections=1000)
        )
        from openai import OpenAI

        self._addresses = [
            Address(
                OpenAI(
                    base_url=url,
                    api_key=key or "no-key",
                    timeout=self._timeout,
                    max_retries=0,
                    http_client=http,  # httpx's, which OpenAI's client accepts as well as its own httpx2
                ),
                f"{name} at {bare(url)}",
            )
            for url in server.urls
        ]
        self._lock = threading.Lock()
        self.where = self._addresses[0].where + (f" and {more} more" if (more := len(server.urls) - 1) else "")
        self.retries = self.timeouts = 0
        self._answered = False

    def ask(self, attempt: "Callable[[Client], Any]") -> Any:
        """Return what ``attempt`` gets from the client; None if the answer does not follow the protocol.

        Raises:
            ServiceUnavailable: no answer, or only 429 and 5xx answers, until the deadline.
            ContextLengthExceeded: the server refuses the request because its prompt is too long.
            ParamsError: it refuses the request for another reason (address, model, key).
        """
        begun = time.monotonic()

        def may_come(error: Exception) -> bool:
            patient = not isinstance(error, NobodyListens) or time.monotonic() - begun < self._patience
            return unavailable(error) and patient

        return retry(lambda: self._attempt(attempt), self._deadline, may_come, tell=self._count)

    @property
    def _patience(self) -> float:
        """Return the seconds for which connections may be refused: a server that has answered may be restarting."""
        return self._deadline if self._answered else min(FIRST_SECONDS, self._deadline)

    def _attempt(self, attempt: "Callable[[Client], Any]") -> Any:
        with self._lock:
            now = time.monotonic()
            address = min(self._addresses, key=lambda each: (max(0.0, each.rests_until - now), each.load))
            address.load += 1
        try:
            return self._attempt_at(address, attempt)
        except ServiceUnavailable as error:
            if not isinstance(error, TooManyRequests):
                self._let_rest(address)
            raise
        finally:
            with self._lock:
                address.load -= 1

    def _let_rest(self, address: Address) -> None:
        """Use other addresses for a while, and say so once."""
        with self._lock:
            now = time.monotonic()
            resting, address.rests_until = address.rests_until > now, now + REST_SECONDS
            others = sum(other.rests_until <= now for other in self._addresses)
        if others and not resting:
            tqdm.write(f"{address.where} does not answer; {others} others are asked meanwhile", file=sys.stderr)

    def _attempt_at(self, address: Address, attempt: "Callable[[Client], Any]") -> Any:
        from openai import APIConnectionError, APIResponseValidationError, APIStatusError, APITimeoutError

        try:
            answer = attempt(address.client)
            self._answered = True
            return answer
        except APIConnectionError as error:  # APITimeoutError is one of these
            waited = isinstance(error, APITimeoutError)
            with self._lock:
                self.timeouts += waited
            if waited:
                raise ServiceUnavailable(
                    f"{address.where}: no answer within {self._timeout:g} s, tried for {self._deadline:g} s; see the "
                    f"server's log, or mend {self._server.place} (concurrency, timeout_seconds, deadline_seconds)"
                ) from None
            cause = one_line(error.__cause__ or error, secret=self._secret)
            remedy = connection_remedy(cause, str(address.client.base_url), f"{self._server.place}.urls")
            kind = NobodyListens if "refused" in cause else ServiceUnavailable
            raise kind(
                f"{address.where}: connection failed, tried for {self._patience:g} s ({cause}); {remedy}"
            ) from None
        except APIStatusError as error:
            self._answered = True
            raise self._refusal(address.where, error) from None
        except (APIResponseValidationError, ValueError, RecursionError):
            return None  # a page that claims to be JSON, or endless brackets

    def _count(self, error: Exception, number: int) -> None:
        with self._lock:
            self.retries += 1
            if self.retries == 1 and len(self._addresses) == 1:
                patience = self._patience if isinstance(error, NobodyListens) else self._deadline
                line = f"{self.where} does not answer yet; it is asked again, for {patience:g} s at most"
                tqdm.write(line, file=sys.stderr)

    def _refusal(self, at: str, error: "APIStatusError") -> HarrError:
        """Return an HTTP error in the user's terms; the key is cut out of the server's text."""
        said = error if " - " in str(error) else f"{error} - {error.body}"  # FastAPI's bodies have no message
        where = f"{at}: HTTP {error.status_code} ({one_line(said, 300, secret=self._secret)})"
        if is_transient(error.status_code):
            return TooManyRequests(
                f"{where}, tried for {self._deadline:g} s; look at the server's log, or lower {self._server.place}.concurrency",
                retry_after(error.response),
            )
        if error.status_code < 400:
            return ParamsError(
                f"{at}: HTTP {error.status_code}, a redirect, which is not followed: what was asked would go "
                f"to another address; name that in {self._server.place}.urls"
            )
        if error.status_code in (401, 403):
            return ParamsError(f"{where}; set the environment variable {self._server.key_variable} to a valid key")
        text = f"{where}; check {self._refused}"
        return ContextLengthExceeded(text, where) if _is_too_long(error) else ParamsError(text)


def retry_after(answer: Any) -> float:
    """Return how many seconds a server asks to wait (Retry-After); 0 if it does not say, or gives a date.

    >>> retry_after(httpx.Response(429, headers={"Retry-After": "7"})), retry_after(httpx.Response(503))
    (7.0, 0.0)
    """
    wish = answer.headers.get("retry-after", "")
    return min(float(wish), LONGEST_WAIT) if wish.isdecimal() and len(wish) < 10 else 0.0


def is_not_found(error: Exception) -> bool:
    """Return whether a server answered 404: it does not know what was requested."""
    from openai import NotFoundError

    return isinstance(error, NotFoundError)


def _is_too_long(error: "APIStatusError") -> bool:
    """Return whether a request was refused because prompt and completion would exceed the model's context."""
    message = error.body.get("message") if isinstance(error.body, dict) else None
    too_long = error.code == "context_length_exceeded" or (isinstance(message, str) and TOO_LONG.match(message))
    return error.status_code == 400 and bool(too_long)
