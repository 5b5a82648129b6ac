"""A stand-in for a paid API: a real HTTP server on loopback with replies chosen by the test."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from harr.params.generator import ServedParams
from harr.params.servers import ServerParams

Reply = Callable[[dict[str, Any], int], tuple[int, Any]]


def asking(*urls: str, **values: Any) -> ServedParams:
    """Return the section of a language model at these addresses; ``values`` are the section's or its server's."""
    of_server = {name: values.pop(name) for name in ServerParams.model_fields.keys() & values.keys()}
    server = ServerParams(**{"name": "llm", "urls": urls, **of_server})
    return ServedParams(**{"kind": "server", "model": "small", **values, "server": server})


class Served:
    """What the test server saw: its address, requests, paths, keys, and the most simultaneous requests."""

    def __init__(self) -> None:
        self.base_url = ""
        self.bodies: list[dict[str, Any]] = []
        self.keys: set[str | None] = set()
        self.paths: set[str] = set()
        self.now = self.peak = 0
        self.lock = threading.Lock()


@contextmanager
def running(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """Run a server on a free loopback port and yield its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def send_json(handler: BaseHTTPRequestHandler, status: int, value: Any) -> None:
    """Answer a request with a status and a JSON value."""
    text = json.dumps(value).encode()
    handler.send_response(status)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Content-Length", str(len(text)))
    handler.end_headers()
    handler.wfile.write(text)


@contextmanager
def serving(reply: Reply) -> Iterator[Served]:
    """Serve ``reply(body, number) -> (status, JSON or text)`` on a free loopback port; status 0 hangs up."""
    served = Served()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with served.lock:
                served.bodies.append(body)
                served.keys.add(self.headers["Authorization"] or self.headers["x-api-key"])
                served.paths.add(self.path)
                number = len(served.bodies)
                served.now += 1
                served.peak = max(served.peak, served.now)
            status, value = reply(body, number)
            text = (
                value if isinstance(value, bytes) else (value if isinstance(value, str) else json.dumps(value)).encode()
            )
            with served.lock:
                served.now -= 1
            if not status:
                self.close_connection = True
                return
            try:
                self.send_response(status)
                self.send_header("Content-Type", "text/html" if isinstance(value, str) else "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)
            except (BrokenPipeError, ConnectionResetError):  # the client had stopped waiting
                self.close_connection = True

        def log_message(self, *_: object) -> None: ...

    with running(Handler) as address:
        served.base_url = f"{address}/v1"
        yield served


def chat(content: str | None) -> dict[str, Any]:
    message = {"role": "assistant", "content": content}
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    return {"id": "1", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}


def completion(text: str, reason: str = "stop") -> dict[str, Any]:
    choice = {"index": 0, "finish_reason": reason, "logprobs": None, "text": text}
    return {"id": "1", "object": "text_completion", "created": 0, "model": "m", "choices": [choice]}
