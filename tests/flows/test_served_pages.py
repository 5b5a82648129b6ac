"""The pages that `harr up` serves: reports and Data Docs open, and no other file of the folder is read."""

import http.client
from collections.abc import Iterator
from pathlib import Path

import pytest
from serving import running

from flows.pages import PageHandler

SHOWN = ("reports/index.html", ".harr/runs/smoke/reports/index.html", "gx/uncommitted/data_docs/local_site/a/b.html")
HIDDEN = ("mlflow.db", "params.yaml", "reports.txt", ".harr/up.json", ".harr/runs/smoke/params.yaml", "gx/secret")


@pytest.fixture
def port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.chdir(tmp_path)
    for name in (*SHOWN, *HIDDEN):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(f"this is {name}")
    with running(PageHandler) as address:
        yield int(address.rpartition(":")[2])


def asked(port: int, path: str, host: str = "127.0.0.1") -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", path, headers={"Host": f"{host}:{port}"})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def test_pages_open_and_nothing_else_of_the_folder(port: int) -> None:
    status, first = asked(port, "/")
    assert status == 200 and all(f'href="/{name}"' in first for name in SHOWN[:2])
    for name in SHOWN:
        assert asked(port, f"/{name}?x=1") == (200, f"this is {name}")
    for path in (*HIDDEN, "reports/", "reports", "reports/../mlflow.db", "reports/%2e%2e/params.yaml"):
        assert asked(port, f"/{path}")[0] == 404, path
    assert asked(port, "/reports/index.html", host="evil.example")[0] == 403, "a page of the web cannot reach it"
