"""Waiting for Prefect has an end, in one line; a stopped process does not wait."""

import asyncio
import subprocess
import time
from collections.abc import Callable

import httpx
import pytest
from prefect.client.base import PrefectHttpxAsyncClient, PrefectHttpxSyncClient
from prefect.client.orchestration import get_client
from prefect.settings import PREFECT_API_URL, temporary_settings

from flows.runtime import prefect_retries
from flows.runtime.command import run_command
from flows.server import free_port
from harr.io import progress


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prefect's clients outlast a server for a moment."""
    for client in (PrefectHttpxSyncClient, PrefectHttpxAsyncClient):
        monkeypatch.setattr(client, "send", client.send)  # puts it back in the end
    for name, seconds in {"WAIT_SECONDS": 0.6, "NOTICE_SECONDS": 0.1, "PAUSE_SECONDS": 0.05}.items():
        monkeypatch.setattr(prefect_retries, name, seconds)
    for name, value in {"since": None, "said": False}.items():
        monkeypatch.setattr(prefect_retries._Outage, name, value)
    prefect_retries.outlast_the_server()
    prefect_retries.outlast_the_server()


def ask() -> None:
    with get_client(sync_client=True) as client:
        client.read_flows()


def ask_async() -> None:
    async def read() -> None:
        async with get_client() as client:
            await client.read_flows()

    asyncio.run(read())


@pytest.mark.parametrize("asked", [ask, ask_async])
def test_a_server_that_does_not_come_back_is_two_lines(
    asked: Callable[[], None], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"http://me:secret@127.0.0.1:{free_port()}/api"
    monkeypatch.setenv("PREFECT_API_URL", url)
    with temporary_settings({PREFECT_API_URL: url}), pytest.raises(SystemExit) as end:
        run_command(asked)
    told = capsys.readouterr().err
    assert end.value.code == 1 and "secret" not in told
    first, last = told.splitlines()
    assert first.startswith("warning: the Prefect server at http://127.0.0.1:")
    assert "did not answer for 1 s; start it" in last and last.startswith("error: ")


@pytest.mark.fault(33)
def test_a_process_that_was_asked_to_stop_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefect_retries, "WAIT_SECONDS", 600.0)
    monkeypatch.setattr(progress, "stop_asked", lambda: True)
    monkeypatch.setattr("logging.raiseExceptions", True)  # puts it back in the end
    with temporary_settings({PREFECT_API_URL: f"http://127.0.0.1:{free_port()}/api"}), pytest.raises(httpx.HTTPError):
        ask()


STUCK = """
import threading, time
from flows.runtime.command import run_command
from harr.io import progress

def main():
    threading.Thread(target=time.sleep, args=(100,)).start()
    progress.ask_to_stop(lambda: None)
    print("done")

run_command(main)
"""


@pytest.mark.fault(33)
@pytest.mark.services
def test_a_stopped_process_does_not_wait_for_threads_that_hang(
    program: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    began = time.monotonic()
    done = program("-c", STUCK)
    assert (done.returncode, done.stdout, done.stderr) == (143, "done\n", "") and time.monotonic() - began < 60
