"""The command `harr serve`: a trained retriever over HTTP."""

import errno
import os
import signal
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from harr.errors import ParamsError
from harr.params import Params
from harr.serve.middleware import is_loopback
from harr.services.model_registry import CACHE, CHAMPION

if TYPE_CHECKING:
    from fastapi import FastAPI

    from harr.serve.searcher import Dtype

CONNECTIONS = 900
"""Most clients connected at a time; on most machines a process may open 1,024 files."""
DRAIN_SECONDS = 30
"""Seconds that a signal waits for open requests, so that one whose body never comes does not keep the server up."""


def serve(
    model: str,
    project: Path,
    host: str,
    port: int,
    token_variable: str,
    dtype: "Dtype",
    room: int,
    observers: Sequence[str] = (),
) -> None:
    """Answer until a signal comes; see `harr serve --help`.

    Raises:
        ParamsError: the address can be reached from elsewhere and there is no token, or the port is taken.
        HarrError: there is no such model or index, or an observer refuses.
    """
    token, host = os.environ.get(token_variable, "").strip(), host.strip("[]")
    loopback = is_loopback(host)
    if not (loopback or token):
        raise ParamsError(
            f"--host {host} is reached from other machines, and ${token_variable} holds no token; set it, or leave "
            "--host at 127.0.0.1"
        )
    project = project.expanduser().resolve()
    listener = _bind(host, port)
    from harr.serve.application import application  # not before: importing torch takes time
    from harr.serve.follower import Follower
    from harr.serve.searcher import Searcher
    from harr.serve.service import RetrieverService

    followed = model or f"models:/{Params.load(project / 'params.yaml').tracking.registered_model}@{CHAMPION}"
    searcher = Searcher(project, dtype)
    follower = Follower(followed, project, project / CACHE, searcher.load, searcher.has_changed)
    follower.start()
    service = RetrieverService(searcher, follower, room=room, observers=observers)
    label = f"version {service.health()['version']} of {followed}, {searcher.passages} passages"
    _listen(listener, host, port)
    page = f"http://{_url_host(host)}:{listener.getsockname()[1]}"
    app = application(service, token=token, loopback=loopback)
    _over_http(app, listener, f"{label}: {page}   Ctrl-C stops it")


def _url_host(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _bind(host: str, port: int) -> socket.socket:
    """Return a socket bound to the address but not listening yet: nobody gets in before the model is loaded."""
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise _taken(host, port, error) from None
    return listener


def _listen(listener: socket.socket, host: str, port: int) -> None:
    """Let clients in; it fails if another server, which SO_REUSEADDR let bind the same port, was faster."""
    try:
        listener.listen()
    except OSError as error:
        listener.close()
        raise _taken(host, port, error) from None


def _taken(host: str, port: int, error: OSError) -> ParamsError:
    other = "port" if error.errno in (errno.EADDRINUSE, errno.EACCES) else "host"
    return ParamsError(f"--host {host} --port {port} cannot be had ({error.strerror}); name another {other}")


def _over_http(app: "FastAPI", listener: socket.socket, line: str) -> None:
    """Answer until a signal comes, and print a line once requests are accepted."""
    import uvicorn

    class Telling(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            print(line, flush=True)

    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        lifespan="on",
        timeout_graceful_shutdown=DRAIN_SECONDS,
        limit_concurrency=CONNECTIONS,
    )
    for number in (signal.SIGTERM, signal.SIGINT):  # uvicorn raises them again once it has drained
        signal.signal(number, _end)
    Telling(config).run(sockets=[listener])


def _end(number: int, _: object) -> None:
    raise SystemExit(0 if number == signal.SIGTERM else 130)
