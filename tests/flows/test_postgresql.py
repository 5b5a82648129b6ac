"""Prefect's server on PostgreSQL: it makes its tables, keeps what a flow reports, and its scheduler schedules."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from servers import wait_for

from flows.server import free_port, healthy, prefect_command

pytestmark = pytest.mark.services
TINY = """
import asyncio
from prefect import flow, task

@task
def double(number):
    return 2 * number

@flow(name="tiny", flow_run_name="tiny-run")
async def tiny():
    return double(21)

if __name__ == "__main__":
    assert asyncio.run(tiny()) == 42
"""
SCHEDULE = """
import datetime
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import DeploymentScheduleCreate
from prefect.client.schemas.schedules import IntervalSchedule

with get_client(sync_client=True) as client:
    schedule = DeploymentScheduleCreate(schedule=IntervalSchedule(interval=datetime.timedelta(minutes=1)), active=True)
    client.create_deployment(client.create_flow_from_name("tiny"), "often", schedules=[schedule])
"""


def wait_until(condition: Callable[[], Any], seconds: float = 120) -> Any:
    """Poll a condition; its value, or the last one."""
    deadline = time.monotonic() + seconds
    while not (value := condition()) and time.monotonic() < deadline:
        time.sleep(0.2)
    return value


@pytest.fixture
def environment(workplace: Path, postgresql: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """What a program needs to talk to a server whose history is in PostgreSQL."""
    port = free_port()
    command, environment = prefect_command(port)
    address = postgresql.replace("psycopg2", "asyncpg")
    log = workplace / "prefect.log"
    with log.open("wb") as out:
        server = subprocess.Popen(
            command,
            stdout=out,
            stderr=out,
            env=environment | {"PREFECT_API_DATABASE_CONNECTION_URL": address},
            start_new_session=True,
        )
    try:
        wait_for(port, server, log)
        url = f"http://127.0.0.1:{port}/api"
        assert wait_until(lambda: healthy(url)), log.read_text()
        yield os.environ | {"PREFECT_API_URL": url}
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def test_runs_and_schedules_are_kept_in_postgresql(
    workplace: Path, environment: dict[str, str], postgresql: str
) -> None:
    """Asked of PostgreSQL itself; with SQLAlchemy 2.1 the scheduler would die silently."""
    import psycopg2

    def rows(query: str) -> list[Any]:
        with psycopg2.connect(postgresql.replace("+psycopg2", "")) as connection, connection.cursor() as cursor:
            cursor.execute(query)
            return list(cursor.fetchall())

    for program in (TINY, SCHEDULE):
        done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, timeout=200)
        assert done.returncode == 0, done.stderr.decode()
    assert rows("select name, state_type from flow_run where not auto_scheduled") == [("tiny-run", "COMPLETED")]
    assert [state for (state,) in rows("select state_type from task_run")] in (
        [],
        ["COMPLETED"],
    )  # comes a little later
    assert wait_until(lambda: rows("select name from flow_run where auto_scheduled and state_type = 'SCHEDULED'"))
    assert wait_until(lambda: rows("select state_type from task_run") == [("COMPLETED",)])
    assert not list(workplace.rglob("prefect.db"))  # nothing went to SQLite instead
