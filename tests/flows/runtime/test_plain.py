"""A flow without a Prefect server calls its tasks as the functions that they wrap."""

import pytest
from prefect import Task, flow, task

from flows.runtime.stage import run_flow
from tasks.common import as_it_is


@task
def doubled(rows: list[int]) -> list[int]:
    return [*rows, *rows]


@flow
async def twice(rows: list[int]) -> list[int]:
    return doubled(as_it_is(rows))


def test_a_task_without_prefect_gets_the_rows_that_prefect_would_not_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    monkeypatch.setattr(Task, "__call__", Task.__call__)  # puts it back in the end
    assert run_flow(twice, rows=[1]) == [1, 1]
