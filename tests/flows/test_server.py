"""One local Prefect server per run: started once, reused, gone after."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from flows.server import STATE, healthy

ROOT = Path(__file__).parents[2]
RUNNER = """
import subprocess, sys
code = "from flows.server import ensure_server; print(ensure_server())"
for _ in range(2):
    subprocess.run([sys.executable, "-c", code], check=True)
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

    for address in ("http://me:secret@127.0.0.1:9/api", "http://127.0.0.1:99999/api", "http://127.0.0.1:x/api"):
        monkeypatch.setenv("PREFECT_API_URL", address)
        expected = r"no Prefect server answers at PREFECT_API_URL http://127\.0\.0\.1:"
        with pytest.raises(ServiceUnavailable, match=expected):
            ensure_server()
    assert not STATE.exists()


def test_deployments_point_at_flows() -> None:
    """Every entrypoint of prefect.yaml is a file with a function under @flow; every stage has a deployment."""
    deployments = yaml.safe_load((ROOT / "prefect.yaml").read_text())["deployments"]
    for deployment in deployments:
        path, function = deployment["entrypoint"].split(":")
        text = (ROOT / path).read_text()
        assert f"def {function}(" in text.split("@flow", 1)[1]
        assert deployment["work_pool"]["name"] in ("cpu", "gpu")
    staged = [(d["name"], d["parameters"]["stage"]) for d in deployments if d["entrypoint"].endswith(":one_stage")]
    entries = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
    order = enumerate((name for name, spec in entries.items() if not spec.get("always_changed")), start=1)
    assert staged == [(f"stage-{number}-{name}", name) for number, name in order]
    assert all(deployment["description"] and deployment["tags"] for deployment in deployments)
    assert {"promote", "rollback", "nightly", "on-demand"} <= {d["name"] for d in deployments}
