"""Servers that answer, refuse, serve something else, or are not there."""

import base64
import json
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from flows.doctor import addresses
from flows.doctor.addresses import (
    ask,
    check_milvus,
    check_model_server,
    check_prefect,
    known_ports,
)
from flows.doctor.finding import broken, in_background
from flows.doctor.runs import read_store
from harr.errors import ServiceUnavailable
from harr.io.files import write_json
from harr.params import Params

ROOT = Path(__file__).parents[3]
Serve = Callable[..., str]


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """Starts a server on loopback that gives fixed answers, path to (status, value); returns its address."""
    monkeypatch.setattr(addresses, "SECONDS", 20)  # a busy machine may take longer than a user wants to wait
    servers = []

    def start(answers: dict[str, tuple[int, object]], key: str = "", asked: list[str] | None = None) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if asked is not None:
                    asked.append(self.path)
                status, value = answers.get(self.path, (404, None))
                if key and self.headers.get("Authorization") != f"Bearer {key}":
                    status, value = 401, None
                self.send_response(status)
                if 300 <= status < 400:
                    self.send_header("Location", str(value))
                self.end_headers()
                self.wfile.write(json.dumps(value).encode())

            def log_message(self, *words: object) -> None:
                """Say nothing."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{server.server_address[1]}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def nobody() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"


def test_prefect_configured_and_gone(tmp_path: Path) -> None:
    assert check_prefect(tmp_path, {})[0].level == "ok"
    (found,) = check_prefect(tmp_path, {"PREFECT_API_URL": f"{nobody()}/api"})
    assert found.level == "fail" and "unset PREFECT_API_URL" in found.fix
    write_json(tmp_path / ".harr/prefect.json", {"url": f"{nobody()}/api", "pid": 1})
    assert check_prefect(tmp_path, {})[0].fix == "rm .harr/prefect.json"
    (tmp_path / ".harr/prefect.json").write_text("{")
    assert check_prefect(tmp_path, {})[0].level == "warn"


def test_a_prefect_server_whose_pages_ask_the_default_port(serve: Serve, tmp_path: Path) -> None:
    health = {"/api/health": (200, True)}
    trapped = serve(health | {"/ui-settings": (200, {"api_url": "http://127.0.0.1:4200/api"})})
    (found,) = check_prefect(tmp_path, {"PREFECT_API_URL": f"{trapped}/api"})
    assert (found.level, found.fix) == ("warn", f"start the server with PREFECT_SERVER_UI_API_URL={trapped}/api")
    fine = serve(health)
    assert check_prefect(tmp_path, {"PREFECT_API_URL": f"{fine}/api/"})[0].level == "ok"


def test_mlflow_and_milvus_answer_or_not(serve: Serve, tmp_path: Path) -> None:
    params = Params.load(ROOT / "recipes/smoke.yaml")
    for address, said in ((serve({"/health": (403, "")}), "answers 403"), (nobody(), "does not answer")):
        with pytest.raises(ServiceUnavailable, match=said):
            read_store(tmp_path, address, params)
    assert check_milvus(serve({}))[0].level == "ok"
    assert check_milvus(nobody())[0].level == "fail"


def test_a_redirect_is_not_followed(serve: Serve, tmp_path: Path) -> None:
    """What params.yaml does not name is not asked, and a key goes nowhere else."""
    asked: list[str] = []
    elsewhere = serve({"/v1/models": (200, {"data": [{"id": "qwen"}]}), "/health": (200, "OK")}, asked=asked)
    address = serve({path: (307, f"{elsewhere}{path}") for path in ("/v1/models", "/health", "/api/health")})
    (found,) = check_model_server("generator", f"{address}/v1", "qwen", "KEY", {"KEY": "right"})
    assert found.level == "fail" and "HTTP 307, a redirect, which is not followed" in found.found
    with pytest.raises(ServiceUnavailable, match="a redirect, which is not followed"):
        read_store(tmp_path, address, Params.load(ROOT / "recipes/smoke.yaml"))
    assert check_prefect(tmp_path, {"PREFECT_API_URL": f"{address}/api"})[0].level == "fail"
    assert asked == []


def test_a_model_server_with_key_and_model(serve: Serve) -> None:
    address = f"{serve({'/v1/models': (200, {'data': [{'id': 'qwen'}]})}, key='right')}/v1"

    def found(model: str, **environment: str) -> tuple[str, str]:
        (one,) = check_model_server("generator", address, model, "KEY", environment)
        assert "right" not in one.found + one.fix and "wrong" not in one.found + one.fix
        return one.level, one.found

    assert found("qwen", KEY="right")[0] == "ok"
    assert found("qwen")[0] == "fail" and "$KEY is unset" in found("qwen")[1]
    assert "refused" in found("qwen", KEY="wrong")[1]
    assert "serves qwen, not llama" in found("llama", KEY="right")[1]
    assert check_model_server("generator", f"{serve({})}/v1", "m", "KEY", {})[0].level == "warn"
    assert check_model_server("generator", nobody(), "m", "KEY", {})[0].level == "fail"


def test_ports_of_this_machine_that_are_named_somewhere(tmp_path: Path) -> None:
    params = Params.load(ROOT / "recipes/smoke.yaml")
    write_json(tmp_path / ".harr/prefect.json", {"url": "http://127.0.0.1:4711/api"})
    environment = {"PREFECT_API_URL": "https://prefect.example.org:443/api"}
    assert set(known_ports(tmp_path, params, environment, "http://localhost:5050")) == {4711, 5050}


def test_an_address_that_cannot_be_is_one_finding_and_its_password_is_not_shown(tmp_path: Path) -> None:
    params = Params.load(ROOT / "recipes/smoke.yaml")
    for url in (
        "http://127.0.0.1:99999/api",
        "http://127.0.0.1:x/api",
        "http://me:secret@127.0.0.1:9/api",
        "http://[/",
    ):
        (found,) = check_prefect(tmp_path, {"PREFECT_API_URL": url})
        assert found.level == "fail" and "secret" not in str(found)
        told = known_ports(tmp_path, params, {"PREFECT_API_URL": url}, "sqlite:///mlflow.db")
        assert set(told) <= {9} and "secret" not in str(told)
    assert check_milvus("http://[")[0].level == "fail"


def test_a_port_that_speaks_no_http_is_one_finding() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def greet() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.sendall(b"220 mail.example ESMTP\r\n")
                connection.recv(4096)  # what is unread when it closes would reset the connection

        threading.Thread(target=greet, daemon=True).start()
        with pytest.raises(ServiceUnavailable, match="speaks no HTTP"):
            ask(f"http://127.0.0.1:{listening.getsockname()[1]}")


def test_a_name_and_password_in_an_address_are_sent_and_not_shown(tmp_path: Path) -> None:
    seen = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.headers.get("Authorization"))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *words: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://me:p%40ss@127.0.0.1:{server.server_address[1]}/api"
        (found,) = check_prefect(tmp_path, {"PREFECT_API_URL": url})
        server.shutdown()
    assert set(seen) == {f"Basic {base64.b64encode(b'me:p@ss').decode()}"}
    assert found.level == "ok" and "ss@" not in found.found


def test_a_server_that_says_nothing_does_not_hold_up_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses, "SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(ServiceUnavailable, match="timed out"):
        ask(f"http://127.0.0.1:{silent.getsockname()[1]}/")
    release = threading.Event()
    slow = in_background(lambda: release.wait(30))
    with pytest.raises(TimeoutError) as late:
        slow.result(0.01)
    assert (broken("slow", late.value).level, broken("slow", late.value).fix) == ("warn", "check its address")
    release.set()
    assert slow.result(10) is True


def test_an_error_in_a_check_comes_with_its_result() -> None:
    with pytest.raises(ZeroDivisionError):
        in_background(lambda: 1 // 0).result(10)
