"""Waiting for Prefect has an end, in one line; a stopped process does not wait."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flows.server import free_port

ASK = """
import asyncio, sys
from prefect.client.orchestration import get_client
from flows.runtime import prefect_retries
from flows.runtime.command import run_command
from harr.io import progress

prefect_retries.WAIT_SECONDS, prefect_retries.NOTICE_SECONDS = 1.5, 0.5
prefect_retries.outlast_the_server()
prefect_retries.outlast_the_server()

async def ask():
    async with get_client() as client:
        await client.read_flows()

def ask_now():
    with get_client(sync_client=True) as client:
        client.read_flows()

def main():
    if "stopped" in sys.argv:
        progress.ask_to_stop(lambda: sys.exit(print("stopped", file=sys.stderr) or 143))
    ask_now() if "sync" in sys.argv else asyncio.run(ask())

run_command(main)
"""


def asked(*words: str) -> tuple[int, str]:
    """Exit code and what was printed, where no server is."""
    environment = {**os.environ, "PREFECT_API_URL": f"http://me:secret@127.0.0.1:{free_port()}/api"}
    done = subprocess.run(
        [sys.executable, "-c", ASK, *words], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("words", [["sync"], ["async"]])
def test_a_server_that_does_not_come_back_is_two_lines(workplace: Path, words: list[str]) -> None:
    code, told = asked(*words)
    lines = told.splitlines()
    assert code == 1 and len(lines) == 2, told
    assert "secret" not in told
    assert lines[0].startswith("warning: the Prefect server at http://127.0.0.1:")
    assert "did not answer for 2 s; start it" in lines[1] and lines[1].startswith("error: ")


def test_a_process_that_was_asked_to_stop_does_not_wait(workplace: Path) -> None:
    began = time.monotonic()
    code, told = asked("sync", "stopped")
    assert code == 143 and told == "stopped\n" and time.monotonic() - began < 60


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


def test_a_stopped_process_does_not_wait_for_threads_that_hang(workplace: Path) -> None:
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", STUCK], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (143, "done\n", "") and time.monotonic() - began < 60
