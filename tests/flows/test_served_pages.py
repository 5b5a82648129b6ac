"""The pages that `harr up` serves: reports and Data Docs open, and no other file of the folder is read."""

import http.client
import threading
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest

from flows.pages import PageHandler
from flows.runtime.artifacts import _link, _verdict
from harr.evaluate.tables import markdown_grid

SHOWN = ("reports/index.html", ".harr/runs/smoke/reports/index.html", "gx/uncommitted/data_docs/local_site/a/b.html")
HIDDEN = ("mlflow.db", "params.yaml", "reports.txt", ".harr/up.json", ".harr/runs/smoke/params.yaml", "gx/secret")


@pytest.fixture
def port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.chdir(tmp_path)
    for name in (*SHOWN, *HIDDEN):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(f"this is {name}")
    with ThreadingHTTPServer(("127.0.0.1", 0), PageHandler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def asked(port: int, path: str, host: str = "127.0.0.1") -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", path, headers={"Host": f"{host}:{port}"})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def test_pages_open_and_the_first_one_leads_to_them(port: int) -> None:
    status, first = asked(port, "/")
    assert status == 200 and all(f'href="/{name}"' in first for name in SHOWN[:2])
    for name in SHOWN:
        assert asked(port, f"/{name}?x=1") == (200, f"this is {name}")


@pytest.mark.parametrize("path", [*HIDDEN, "reports/", "reports", "reports/../mlflow.db", "reports/%2e%2e/params.yaml"])
def test_no_other_file_is_read(port: int, path: str) -> None:
    assert asked(port, f"/{path}")[0] == 404


def test_a_page_of_the_web_cannot_reach_it(port: int) -> None:
    assert asked(port, "/reports/index.html", host="evil.example")[0] == 403


def test_links_open_where_the_pages_are_served(tmp_path: Path) -> None:
    page = tmp_path / "reports/in dex.html"
    assert _link("Report", page, "http://127.0.0.1:8003", tmp_path) == (
        "- [Report](http://127.0.0.1:8003/reports/in%20dex.html)"
    )
    assert str(page) in _link("Report", page, "", tmp_path)


def test_a_verdict_is_a_list_and_arms_are_a_table() -> None:
    assert _verdict("kept: a; b").splitlines() == ["## Promotion", "**kept: a**", "", "- b"]
    assert "|---|--:|" in markdown_grid([["arm", "n"], ["full", "3"]])


def test_a_run_that_keeps_the_champion_is_complete_and_the_command_says_why(
    workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flows.pipeline import promotion, run_promotion
    from harr.errors import PromotionRefused

    monkeypatch.setattr("tasks.registry.promote.outcome_of", lambda what, params, **more: (False, f"no {what}"))
    state = promotion.fn()
    assert state and state.is_completed() and (state.name, state.message) == ("Kept", "kept: no promote")
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    with pytest.raises(PromotionRefused, match="no rollback"):
        run_promotion("params.yaml", back=True)
