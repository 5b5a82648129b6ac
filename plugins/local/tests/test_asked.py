"""Servers that answer, refuse, serve something else, or are not there."""

import base64
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from harr_local import asked as checks
from harr_local.asked import Server, check_milvus, check_model_server, servers
from servers import free_port
from serving import asking, running

from flows import versions
from flows.finding import Finding
from harr.errors import ServiceUnavailable
from harr.params import Params
from harr.params.servers import ServerParams
from harr.params.sources import ExaParams

ROOT = Path(__file__).parents[3]
Serve = Callable[..., str]


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """Starts a server on loopback that gives fixed answers, path to (status, value); returns its address.

    It notes (path, authorization) of every request in ``asked``.
    """
    for module in (checks, versions):
        monkeypatch.setattr(module, "SECONDS", 20)  # a busy machine may take longer than a user wants to wait
    with ExitStack() as stack:

        def start(answers: dict[str, tuple[int, object]], key: str = "", asked: Any = None) -> str:
            class Handler(BaseHTTPRequestHandler):
                def do_GET(self) -> None:
                    if asked is not None:
                        asked.append((self.path, self.headers.get("Authorization")))
                    status, value = answers.get(self.path, (404, None))
                    if key and self.headers.get("Authorization") != f"Bearer {key}":
                        status, value = 401, None
                    self.send_response(status)
                    if 300 <= status < 400:
                        self.send_header("Location", str(value))
                    self.end_headers()
                    self.wfile.write(json.dumps(value).encode())

                def log_message(self, *words: object) -> None: ...

            return stack.enter_context(running(Handler))

        yield start


def nobody() -> str:
    return f"http://127.0.0.1:{free_port()}"


def model_server(address: str, model: str = "qwen", **environment: str) -> Finding:
    server = Server("generator", (address,), model, "KEY")
    (found,) = check_model_server(server, address, environment)
    return found


def test_mlflow_and_milvus_answer_or_not(serve: Serve) -> None:
    for address, said in ((serve({"/health": (403, "")}), "answers 403"), (nobody(), "does not answer")):
        with pytest.raises(ServiceUnavailable, match=said):
            versions.check_answer(address)
    for address in (serve({"/health": (200, "OK")}), "sqlite:///a.db"):
        versions.check_answer(address)
    levels = [check_milvus(address)[0].level for address in (serve({}), nobody(), "http://[")]
    assert levels == ["ok", "fail", "fail"]


@pytest.mark.fault(32)
def test_a_redirect_is_not_followed(serve: Serve) -> None:
    """What params.yaml does not name is not asked, and a key goes nowhere else."""
    asked: list[Any] = []
    elsewhere = serve({"/v1/models": (200, {"data": [{"id": "qwen"}]}), "/health": (200, "OK")}, asked=asked)
    address = serve({path: (307, f"{elsewhere}{path}") for path in ("/v1/models", "/health")})
    found = model_server(f"{address}/v1", KEY="right")
    assert found.level == "warn" and "answers 307" in found.found
    with pytest.raises(ServiceUnavailable, match="answers 307"):
        versions.check_answer(address)
    assert asked == []


def test_a_model_server_with_key_and_model(serve: Serve) -> None:
    address = f"{serve({'/v1/models': (200, {'data': [{'id': 'qwen'}]})}, key='right')}/v1"

    def found(model: str, **environment: str) -> tuple[str, str]:
        one = model_server(address, model, **environment)
        assert "right" not in one.found + one.fix and "wrong" not in one.found + one.fix
        return one.level, one.found

    assert found("qwen", KEY="right")[0] == "ok"
    assert found("qwen")[0] == "fail" and "$KEY is unset" in found("qwen")[1]
    assert "refused" in found("qwen", KEY="wrong")[1]
    assert "serves qwen, not llama" in found("llama", KEY="right")[1]
    assert model_server(f"{serve({})}/v1").level == "warn"
    assert model_server(nobody()).level == "fail"


def test_addresses_are_asked_with_their_password_which_is_not_shown(serve: Serve) -> None:
    asked: list[Any] = []
    url = serve({"/v1/models": (200, {"data": [{"id": "qwen"}]})}, asked=asked)
    found = model_server(f"{url}/v1".replace("//", "//me:p%40ss@"))
    assert {authorization for _, authorization in asked} == {f"Basic {base64.b64encode(b'me:p@ss').decode()}"}
    assert found.level == "ok" and "ss@" not in found.found
    for wrong in ("//127.0.0.1:99999/v1", "//127.0.0.1:x/v1", "//me:secret@127.0.0.1:9/v1", "//[/"):
        found = model_server(f"http:{wrong}")
        assert found.level == "fail" and "secret" not in str(found)


def test_every_server_is_known_wherever_a_section_names_it() -> None:
    writer = asking("http://127.0.0.1:1/v1", "http://127.0.0.1:2/v1")
    params = Params.load(ROOT / "recipes/smoke.yaml")
    sections = {
        "generator": writer,
        "evaluate": params.evaluate.model_copy(update={"reader": writer}),
        "filter": params.filter.model_copy(update={"preferences": writer}),
        "sources": {"News": ExaParams(kind="exa", server=ServerParams(urls=("http://127.0.0.1:3",)))},
    }
    found = {one.section: one.urls for one in servers(params.model_copy(update=sections))}
    assert set(found) == {"generator", "evaluate.reader", "filter.preferences", "sources.News"}
    assert found["generator"] == ("http://127.0.0.1:1/v1", "http://127.0.0.1:2/v1")
