"""A proxy in the environment, as in a company's network, is for servers elsewhere, never for this machine's."""

import os
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import httpx
import pytest
from harr_local.servers import healthy
from serving import asking, chat, running, send_json

from harr.errors import ServiceUnavailable
from harr.params.index import IndexParams
from harr.rag.generation.server import ServerGenerator
from harr.services.milvus_client import connect
from harr.services.mlflow_store import client_of
from harr.types import Generate
from tasks import PROXIES, bypass_proxies

NOBODY = "http://127.0.0.1:9"
OWN = "127.0.0.1,localhost,::1"


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(urllib.request, "_opener", None)  # it caches the proxies of its first use
    for name in (*PROXIES, "no_proxy"):
        for spelt in (name, name.upper()):
            monkeypatch.setenv(spelt, "")  # monkeypatch then removes it
            monkeypatch.delenv(spelt)


@pytest.fixture
def seen() -> Iterator[tuple[str, list[str]]]:
    """The address of a server that answers every request, even as a proxy, and what it was asked for."""
    paths: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            paths.append(self.path)
            send_json(self, 200, chat("yes"))

        do_HEAD = do_POST = do_GET

        def log_message(self, *_: object) -> None: ...

    with running(Handler) as address:
        yield address, paths


@pytest.mark.parametrize("name", ["http_proxy", "HTTP_PROXY", "all_proxy"])
def test_no_server_of_this_machine_is_asked_through_a_proxy(
    name: str, seen: tuple[str, list[str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (address, paths), (boto3, prefect) = seen, map(pytest.importorskip, ("boto3", "prefect.client.orchestration"))
    monkeypatch.setenv(name, NOBODY)
    lite = connect(IndexParams(), str(tmp_path / "milvus.db"))  # as in an application, without a command of harr
    assert lite.list_collections() == []
    lite.close()
    bypass_proxies()
    assert healthy(address)
    assert ServerGenerator(asking(f"{address}/v1")).complete([Generate(({"role": "user", "content": "?"},))]) == ["yes"]
    assert client_of(address).search_experiments() == []
    assert prefect.SyncPrefectClient(f"{address}/api").api_healthcheck() is None
    keys = {"aws_access_key_id": "a", "aws_secret_access_key": "b", "region_name": "us-east-1"}
    boto3.client("s3", endpoint_url=address, **keys).head_bucket(Bucket="models")
    mlflow = "/api/2.0/mlflow/experiments/search"
    assert paths == ["/health", "/v1/chat/completions", mlflow, "/api/health", "/models"]


def test_a_server_elsewhere_is_asked_through_the_proxy(
    seen: tuple[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    address, paths = seen
    monkeypatch.setenv("http_proxy", address)
    bypass_proxies()
    ServerGenerator(asking("http://model.example/v1")).complete([Generate(({"role": "user", "content": "?"},))])
    client_of("http://mlflow.example").search_experiments()
    assert paths == [
        "http://model.example/v1/chat/completions",
        "http://mlflow.example/api/2.0/mlflow/experiments/search",
    ]


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"no_proxy": "a.example"}, ("a.example", None)),
        ({"HTTPS_PROXY": NOBODY}, (OWN, OWN)),
        ({"http_proxy": NOBODY, "NO_PROXY": "a.example"}, (f"a.example,{OWN}",) * 2),
        ({"http_proxy": NOBODY, "no_proxy": "localhost", "NO_PROXY": ".b"}, ("localhost,127.0.0.1,::1", f".b,{OWN}")),
        ({"http_proxy": NOBODY, "no_proxy": "*"}, ("*", None)),
        (
            {"no_proxy": "a.example,[::1],fd07:b51a::/64,[::1]:80,10.0.0.0/8"},
            ("a.example,::1,10.0.0.0/8,127.0.0.1,localhost", None),
        ),
    ],
)
def test_the_exceptions_of_the_user_stay(
    variables: dict[str, str], expected: tuple[str | None, str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    bypass_proxies()
    bypass_proxies()  # as a child process does
    assert (os.environ.get("no_proxy"), os.environ.get("NO_PROXY")) == expected
    httpx.Client().close()


def test_a_proxy_that_refuses_is_not_taken_for_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://me:Geheim7@127.0.0.1:9")
    bypass_proxies()
    with pytest.raises(ServiceUnavailable) as error:
        ServerGenerator(asking("http://model.example/v1", deadline_seconds=0.1)).complete([Generate(prompt="?")])
    assert str(error.value) == (
        "generator at http://model.example/v1: connection failed, tried for 0.1 s ([Errno 111] Connection refused); it "
        "was asked through the proxy http://127.0.0.1:9: check http_proxy, https_proxy, all_proxy, no_proxy and "
        "servers.llm.urls"
    )
