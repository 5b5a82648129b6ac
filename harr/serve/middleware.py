"""Middleware for every request: checks host name, token and size, and measures the time."""

import contextlib
import hmac
import ipaddress
import json
import re
import time
from collections.abc import Callable
from typing import Any

from starlette.requests import ClientDisconnect

from harr.serve.bodies import MAX_BYTES

OPEN = ("/", "/health")
"""Routes without a token: the page has no data, and container managers poll health."""
GONE = 499
"""Status with which a request is counted if its client disconnects before sending all of it."""
Asgi = Callable[..., Any]


class Door:
    """An ASGI middleware that refuses bad requests in one line and counts the answered ones."""

    def __init__(self, app: Asgi, *, token: str, loopback: bool, counted: Callable[[str, int, float], None]) -> None:
        self._app, self._loopback, self._counted = app, loopback, counted
        self._wanted = f"Bearer {token}".encode() if token else b""

    async def __call__(self, scope: Any, receive: Asgi, send: Asgi) -> None:
        """Refuse a request or pass it on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, response = time.perf_counter(), {"status": 500}

        async def sending(message: Any) -> None:
            if message["type"] == "http.response.start":
                response["status"] = message["status"]
            await send(message)

        app, refusal = scope["app"], self._refusal(scope)
        try:
            if refusal:
                await refuse(sending, *refusal)
            else:
                await self._app(scope, _limit_body(receive), sending)
        except TooLarge:
            await refuse(sending, 413, f"the body has more than {MAX_BYTES} bytes")
        except ClientDisconnect:
            response["status"] = GONE
        finally:
            path = getattr(scope.get("route"), "path", scope["path"])
            is_known = not refusal and any(path == getattr(route, "path", "") for route in app.routes)
            self._counted(path if is_known else "other", response["status"], time.perf_counter() - started)

    def _refusal(self, scope: Any) -> tuple[int, str] | None:
        headers = dict(scope["headers"])
        host = headers.get(b"host", b"").decode("latin-1")
        # A web page that uses DNS rebinding sends a name of its own.
        if self._loopback and not is_loopback(re.sub(r":\d+$", "", host).strip("[]")):
            return 421, f"this server is not called {host[:100]}; ask 127.0.0.1"
        if self._loopback and scope["path"] != "/" and headers.get(b"sec-fetch-site") == b"cross-site":
            return 403, "a page of another site asks; this server answers programs and its own page"
        credentials = headers.get(b"authorization", b"")
        if self._wanted and scope["path"] not in OPEN and not hmac.compare_digest(credentials, self._wanted):
            return 401, "the header Authorization: Bearer TOKEN is missing or wrong"
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length) > MAX_BYTES:
            return 413, f"the body has {int(length)} bytes; at most {MAX_BYTES} are read"
        return None


def is_loopback(host: str) -> bool:
    """Return whether an address can be reached only from this machine.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("::1"), is_loopback("192.168.0.5")
    (True, True, True, False)
    """
    if host.lower() == "localhost":
        return True
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return False


class TooLarge(Exception):
    """A body exceeded its limit while being read."""


def _limit_body(receive: Asgi) -> Asgi:
    read = 0

    async def receiving() -> Any:
        nonlocal read
        message = await receive()
        read += len(message.get("body", b""))
        if read > MAX_BYTES:
            raise TooLarge
        return message

    return receiving


async def refuse(send: Asgi, status: int, line: str) -> None:
    """Answer with a one-line error."""
    body = json.dumps({"error": line}, ensure_ascii=False).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
