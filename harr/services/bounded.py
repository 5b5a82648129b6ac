"""An HTTP client that a server cannot hold up, fill up or send elsewhere, and a call that ends in time."""

import contextlib
import re
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

import httpx

from harr.io.progress import wait

T = TypeVar("T")
MOST_BYTES = 64_000_000
"""The largest answer: 1,000 vectors of 4,096 numbers take 40 MB as text."""
LONGEST_WAIT = 3600.0
"""Seconds that a server's Retry-After may ask for; more counts as this."""


class AnswerTooLarge(httpx.RequestError):
    """An answer is larger than ``MOST_BYTES``, or compressed although nobody asked for that."""


class _Client(httpx.Client):
    """A client that closes its connections when nobody has it any more."""

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError):  # a proxy of an unknown kind: it was never made
            self.close()


def bounded_client(seconds: float, *, secret: str = "") -> httpx.Client:
    """Return a client whose answers are read whole: in so many ``seconds``, up to ``MOST_BYTES``, as they were sent.

    It follows no redirect and asks for no compression, which can hide any size. Where an answer holds the ``secret``
    that was sent, also in the escapes of JSON, three asterisks take its place before anybody reads it.
    """
    spelt = re.compile("".join(rf"(?:\\?{re.escape(letter)}|(?i:\\u{ord(letter):04x}))" for letter in secret).encode())

    def read(answer: httpx.Response) -> None:
        stream, deadline, body = answer.stream, time.monotonic() + seconds, bytearray()
        assert isinstance(stream, httpx.SyncByteStream)
        try:
            if answer.headers.get("content-encoding", "identity") != "identity":
                raise AnswerTooLarge("it is compressed, which nobody asked for")
            for part in stream:
                body += part
                if len(body) > MOST_BYTES:
                    raise AnswerTooLarge(f"it is larger than {MOST_BYTES / 1e6:.0f} MB")
                if time.monotonic() > deadline:
                    raise httpx.ReadTimeout(f"not whole after {seconds:g} s", request=answer.request)
        finally:
            stream.close()
        answer.stream = httpx.ByteStream(spelt.sub(b"***", body) if secret else bytes(body))

    return _Client(
        timeout=seconds,
        follow_redirects=False,
        headers={"Accept-Encoding": "identity"},
        event_hooks={"response": [read]},
        limits=httpx.Limits(max_connections=1000, max_keepalive_connections=100),
    )


def call_within(seconds: float, call: Callable[[], T]) -> T:
    """Return what a call returns or raises; it is left alone, in a thread of its own, where it takes longer.

    A client's time-outs are per read: a server that sends a byte now and then, even of its headers, meets none of them.

    Raises:
        TimeoutError: it took longer, or the process leaves.

    >>> call_within(1.0, lambda: 3)
    3
    >>> call_within(0.01, lambda: time.sleep(0.2))
    Traceback (most recent call last):
        ...
    TimeoutError: not over after 0.01 s
    """
    outcome: list[Any] = []
    over = threading.Event()

    def work() -> None:
        try:
            outcome.extend((True, call()))
        except BaseException as error:
            outcome.extend((False, error))
        finally:
            over.set()

    threading.Thread(target=work, name="within", daemon=True).start()
    wait(seconds, over)
    if not over.is_set():
        raise TimeoutError(f"not over after {seconds:g} s")
    good, result = outcome
    if not good:
        raise result
    answer: T = result
    return answer


def retry_after(answer: Any) -> float:
    """Return how many seconds a server wants to be left alone (Retry-After); 0 where it says nothing.

    A date is taken for nothing: the clocks of two machines differ.

    >>> retry_after(httpx.Response(429, headers={"Retry-After": "7"})), retry_after(httpx.Response(503))
    (7.0, 0.0)
    """
    wish = answer.headers.get("retry-after", "")
    return min(float(wish), LONGEST_WAIT) if wish.isdecimal() and len(wish) < 10 else 0.0
