"""One local Prefect server per run: started once, reused, gone after; and schedules that fire."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from flows.server import STATE, free_port, healthy, prefect_server

ROOT = Path(__file__).parents[2]
RUNNER = """
import subprocess, sys
code = "from flows.server import ensure_server; print(ensure_server())"
for _ in range(2):
    subprocess.run([sys.executable, "-c", code], check=True)
"""
DEPLOY = """
import asyncio, json, time
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import DeploymentFilter, DeploymentFilterId
from flows.pipeline import pipeline

async def scheduled(deployment):
    async with get_client() as client:
        chosen = DeploymentFilter(id=DeploymentFilterId(any_=[deployment]))
        return await client.read_flow_runs(deployment_filter=chosen)

deployment = pipeline.to_deployment("nightly", cron="* * * * *").apply()
deadline = time.monotonic() + 40
runs = []
while not runs and time.monotonic() < deadline:
    time.sleep(0.5)
    runs = asyncio.run(scheduled(deployment))
print(json.dumps([run.state_name for run in runs]))
"""


def wait_until(condition: object, seconds: float) -> bool:
    """Poll a condition."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.2)
    return False


def test_stages_of_one_run_share_a_server_that_ends_with_the_run(workplace: Path) -> None:
    program = workplace / "dvc"
    program.write_text(RUNNER)
    environment = {**os.environ, "PYTHONPATH": str(workplace)}
    done = subprocess.run([sys.executable, program], env=environment, check=True, capture_output=True, text=True)
    said, first, second = done.stdout.splitlines()
    assert said.startswith("starting a local Prefect server")
    assert first == second and first.startswith("http://127.0.0.1:")
    assert wait_until(lambda: not STATE.exists() and not healthy(first), 30)


def test_a_configured_server_is_used_as_it_is(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from flows.server import ensure_server
    from harr.errors import ServiceUnavailable

    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    with pytest.raises(ServiceUnavailable, match=r"no Prefect server answers at PREFECT_API_URL http://127\.0\.0\.1:9"):
        ensure_server()
    assert not STATE.exists()


def test_a_deployment_gets_scheduled_runs(workplace: Path) -> None:
    """With SQLAlchemy 2.1 the scheduler of Prefect 3.8 dies silently: no run is ever scheduled."""
    port = free_port()
    url = f"http://127.0.0.1:{port}/api"
    with prefect_server(port):
        assert wait_until(lambda: healthy(url), 60)
        done = subprocess.run(
            [sys.executable, "-c", DEPLOY],
            env={**os.environ, "PREFECT_API_URL": url},
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert "Scheduled" in json.loads(done.stdout.splitlines()[-1])


def test_deployments_point_at_flows() -> None:
    """Every entrypoint of prefect.yaml is a file with a function under @flow."""
    for deployment in yaml.safe_load((ROOT / "prefect.yaml").read_text())["deployments"]:
        path, function = deployment["entrypoint"].split(":")
        text = (ROOT / path).read_text()
        assert f"def {function}(" in text.split("@flow", 1)[1]
        assert deployment["work_pool"]["name"] == "harr"
