"""A server that trickles, floods, redirects or echoes: an attempt ends, and nothing of it is kept or acted on."""

import gzip
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from serving import chat, serving

from harr.errors import ParamsError, ServiceUnavailable
from harr.rag.generation.server import ServerGenerator
from harr.services import bounded
from harr.types import Generate
from tests.serving import asking

ASKED = [Generate(({"role": "user", "content": "Where?"},))]
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


def generator(base_url: str, **changes: Any) -> ServerGenerator:
    values = {"deadline_seconds": 0.1, "timeout_seconds": 0.5} | changes
    return ServerGenerator(asking(base_url, key_variable="MY_KEY", **values))


@contextmanager
def raw(*parts: bytes, again: float = 0.0) -> Iterator[str]:
    """A server that answers every connection with these bytes, the last of them over and over, ``again`` s apart."""
    over, listening = threading.Event(), socket.create_server(("127.0.0.1", 0))

    def answer(connection: socket.socket) -> None:
        with connection:
            try:
                connection.recv(65536)
                for part in parts:
                    connection.sendall(part)
                while again and not over.wait(again):
                    connection.sendall(parts[-1])
                over.wait(0.2)
            except OSError:
                pass

    def accept() -> None:
        while not over.is_set():
            try:
                answering = threading.Thread(target=answer, args=(listening.accept()[0],), daemon=True)
            except OSError:
                return
            answering.start()
            threads.append(answering)

    threads = [threading.Thread(target=accept, daemon=True)]
    threads[0].start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
    finally:
        over.set()
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        for thread in threads:
            thread.join(10)


@pytest.mark.fault(11)
@pytest.mark.parametrize("parts", [(HEAD + b"\r\n", b" "), (HEAD, b"X-More: a\r\n")], ids=["body", "headers"])
def test_an_answer_that_trickles_in_is_left_at_the_time_out(parts: tuple[bytes, ...]) -> None:
    with raw(*parts, again=0.1) as address:
        began = time.monotonic()
        with pytest.raises(ServiceUnavailable, match=r"no answer within 0\.5 s, tried for 0\.1 s"):
            generator(address).complete(ASKED)
        assert time.monotonic() - began < 30, "it would have gone on for ever"


@pytest.mark.fault(11)
def test_an_answer_without_end_is_left_at_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "MOST_BYTES", 1_000_000)
    with (
        raw(HEAD + b"\r\n", b" " * 65536, again=0.0001) as address,
        pytest.raises(ParamsError, match="the answer is not read: it is larger than 1 MB"),
    ):
        generator(address, timeout_seconds=60.0).complete(ASKED)


@pytest.mark.fault(11)
def test_what_is_compressed_or_has_brackets_without_end_is_not_read() -> None:
    body = gzip.compress(b" " * 10_000_000)
    told = b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body)
    with raw(HEAD + told + body) as address, pytest.raises(ParamsError, match="it is compressed, which nobody asked"):
        generator(address).complete(ASKED)
    with (
        serving(lambda body, number: (200, b"[" * 200_000)) as served,
        pytest.raises(ParamsError, match="the answer is no completion"),
    ):
        generator(served.base_url, timeout_seconds=5.0).complete(ASKED)


@pytest.mark.fault(11)
def test_a_redirect_is_not_followed() -> None:
    with serving(lambda body, number: (200, chat("taken"))) as other:
        moved = (
            f"HTTP/1.1 307 Moved\r\nLocation: {other.base_url}/chat/completions\r\nContent-Length: 0\r\n\r\n".encode()
        )
        with raw(moved) as address, pytest.raises(ParamsError, match="HTTP 307, a redirect, which is not followed"):
            generator(address).complete(ASKED)
        assert other.bodies == []


@pytest.mark.fault(30)
def test_a_key_in_an_answer_is_kept_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor in the escapes of JSON: some write a slash as two characters, and = by its number."""
    monkeypatch.setenv("MY_KEY", "sk/secret=")
    body = b'{"id": "1", "choices": [{"message": {"content": "sk/secret= is sk\\/secret\\u003D, \\u0073k/secret="}}]}'
    with serving(lambda asked, number: (200, body)) as served:
        assert generator(served.base_url, timeout_seconds=5.0).complete(ASKED) == ["*** is ***, ***"]
        assert served.keys == {"Bearer sk/secret="}


def test_a_placeholder_for_a_key_leaves_answers_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "x")
    with serving(lambda asked, number: (200, chat("index"))) as served:
        assert generator(served.base_url, timeout_seconds=5.0).complete(ASKED) == ["index"]


@pytest.mark.fault(30)
def test_a_key_with_the_end_of_its_line_is_sent_without_and_one_that_no_header_holds_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MY_KEY", "sk-secret-0123\n")
    with serving(lambda body, number: (200, chat("yes"))) as served:
        assert generator(served.base_url, timeout_seconds=5.0).complete(ASKED) == ["yes"]
        assert served.keys == {"Bearer sk-secret-0123"}
    for key in ("sk-sécret", "sk-secret\r\nX-Other: 1"):
        monkeypatch.setenv("MY_KEY", key)
        with pytest.raises(ParamsError, match="variable MY_KEY holds letters that no key has") as told:
            generator("http://127.0.0.1:1/v1")
        assert "cret" not in str(told.value)


@pytest.mark.fault(11)
def test_what_a_terminal_would_act_on_is_not_told() -> None:
    with (
        serving(lambda body, number: (400, {"error": {"message": "\x1b[2J\u202eno\x07"}})) as served,
        pytest.raises(ParamsError) as told,
    ):
        generator(served.base_url, timeout_seconds=5.0).complete(ASKED)
    assert str(told.value).isprintable() and "HTTP 400" in str(told.value)


@pytest.mark.fault(11)
def test_a_server_is_left_alone_as_long_as_it_says() -> None:
    times: list[float] = []

    def busy(request: httpx.Request) -> httpx.Response:
        times.append(time.monotonic())
        return (
            httpx.Response(429, headers={"Retry-After": "2"})
            if len(times) == 1
            else httpx.Response(200, json=chat("yes"))
        )

    bounded = generator("http://127.0.0.1:9/v1", timeout_seconds=5.0, deadline_seconds=30.0)
    address = bounded._service._addresses[0]
    address.client = address.client.with_options(http_client=httpx.Client(transport=httpx.MockTransport(busy)))
    assert bounded.complete(ASKED) == ["yes"] and times[1] - times[0] >= 2.0
