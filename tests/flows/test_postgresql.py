"""Prefect's server on PostgreSQL: it makes its tables, stores what a flow reports, and schedules runs."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harr_local.servers import healthy, prefect_command
from servers import server_of, until

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


@pytest.fixture
def environment(workplace: Path, postgresql: str) -> Iterator[dict[str, str]]:
    """The environment for a server whose history is in PostgreSQL."""
    address = postgresql.replace("psycopg2", "asyncpg")
    server = server_of(workplace, prefect_command, PREFECT_API_DATABASE_CONNECTION_URL=address)
    url = server.environment["PREFECT_API_URL"]
    try:
        server.start()
        assert until(lambda: healthy(url)), (workplace / "server.log").read_text()
        yield os.environ | {"PREFECT_API_URL": url}
    finally:
        server.stop()


def test_runs_and_schedules_are_kept_in_postgresql(
    workplace: Path, environment: dict[str, str], postgresql: str
) -> None:
    """PostgreSQL itself is queried: with SQLAlchemy 2.1 the scheduler would die silently."""
    import psycopg2

    def rows(query: str) -> list[Any]:
        with psycopg2.connect(postgresql.replace("+psycopg2", "")) as connection, connection.cursor() as cursor:
            cursor.execute(query)
            return list(cursor.fetchall())

    for program in (TINY, SCHEDULE):
        done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, timeout=200)
        assert done.returncode == 0, done.stderr.decode()
    assert rows("select name, state_type from flow_run where not auto_scheduled") == [("tiny-run", "COMPLETED")]
    assert until(lambda: rows("select name from flow_run where auto_scheduled and state_type = 'SCHEDULED'"))
    assert until(lambda: rows("select state_type from task_run") == [("COMPLETED",)])
    assert not list(workplace.rglob("prefect.db"))  # nothing went to SQLite instead
