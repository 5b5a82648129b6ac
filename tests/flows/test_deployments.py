"""The deployments of prefect.yaml."""

from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]


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
    assert staged == [(f"stage-{number:02d}-{name}", name) for number, name in order]
    assert all(deployment["description"] and deployment["tags"] for deployment in deployments)
    assert not any("schedules" in deployment for deployment in deployments), "deployed again, it would undo a person's"
    assert {"promote", "rollback", "agents", "on-demand"} <= {d["name"] for d in deployments}
