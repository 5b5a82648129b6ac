"""A server that redirects, is busy or is sent a key: harr acts on what it says, and on nothing else."""

import time
from http.server import BaseHTTPRequestHandler
from typing import Any

import httpx
import pytest
from serving import chat, running, serving

from harr.errors import ParamsError
from harr.rag.generation.server import ServerGenerator
from harr.types import Generate
from tests.serving import asking

ASKED = [Generate(({"role": "user", "content": "Where?"},))]


def generator(base_url: str, **changes: Any) -> ServerGenerator:
    values = {"deadline_seconds": 0.1, "timeout_seconds": 0.5} | changes
    return ServerGenerator(asking(base_url, key_variable="MY_KEY", **values))


@pytest.mark.fault(11)
@pytest.mark.fault(32)
def test_a_redirect_is_not_followed() -> None:
    with serving(lambda body, number: (200, chat("taken"))) as other:

        class Moved(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(307)
                self.send_header("Location", f"{other.base_url}/chat/completions")
                self.end_headers()

            def log_message(self, *_: object) -> None: ...

        with running(Moved) as address, pytest.raises(ParamsError, match="HTTP 307, a redirect, which is not followed"):
            generator(f"{address}/v1", timeout_seconds=5.0).complete(ASKED)
        assert other.bodies == []


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
        with pytest.raises(ParamsError, match="variable MY_KEY holds letters that no key has") as error:
            generator("http://127.0.0.1:1/v1")
        assert "cret" not in str(error.value)


@pytest.mark.fault(11)
def test_what_a_terminal_would_act_on_is_not_printed() -> None:
    with (
        serving(lambda body, number: (400, {"error": {"message": "\x1b[2J\u202eno\x07"}})) as served,
        pytest.raises(ParamsError) as error,
    ):
        generator(served.base_url, timeout_seconds=5.0).complete(ASKED)
    assert str(error.value).isprintable() and "HTTP 400" in str(error.value)


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
