"""One local Prefect server per run: started once, reused, gone after."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from servers import until

from flows.server import STATE, ensure_server, healthy
from harr.errors import ServiceUnavailable

ROOT = Path(__file__).parents[2]
RUNNER = """
import subprocess, sys
code = "from flows.server import ensure_server; print(ensure_server())"
for _ in range(2):
    subprocess.run([sys.executable, "-c", code], check=True)
"""


@pytest.mark.services
def test_stages_of_one_run_share_a_server_that_ends_with_the_run(
    workplace: Path, program: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    (workplace / "dvc").write_text(RUNNER)
    done = program("dvc")
    assert done.returncode == 0, done.stderr
    said, first, second = done.stdout.splitlines()
    assert said.startswith("starting a local Prefect server")
    assert first == second and first.startswith("http://127.0.0.1:")
    assert until(lambda: not STATE.exists() and not healthy(first), 60)


def test_a_configured_server_is_used_as_it_is(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
