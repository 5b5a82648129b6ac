"""Damage that the doctor exists for does not end it: a finding names it, and the other checks are made."""

from collections.abc import Callable
from pathlib import Path

import pytest

from flows.doctor import addresses, stages
from flows.doctor.examine import examine
from flows.doctor.status import status
from harr.io.files import write_text


def text(place: str, content: str | bytes) -> Callable[[Path], None]:
    """Damage: a file of this content."""

    def damage(root: Path) -> None:
        (root / place).parent.mkdir(parents=True, exist_ok=True)
        (root / place).write_bytes(content if isinstance(content, bytes) else content.encode())

    return damage


def folder(place: str) -> Callable[[Path], None]:
    """Damage: a folder where a file belongs."""
    return lambda root: (root / place).mkdir(parents=True)


def half_written(root: Path) -> None:
    """A report for MLflow that breaks off, beside a whole one."""
    note = '{"address": "http://127.0.0.1:9", "stage": "train", "status": "FINISHED"}'
    write_text(root / "work/mlflow/1-train-1.json", note)
    write_text(root / "work/mlflow/2-embed-1.json", note[:9])


LOCK = "stages:\n  download:\n    cmd: a\n    deps:\n    - {}\n"
DAMAGES = {
    "server": (text(".harr/prefect.json", "[1]"), "warn", "Prefect", ".harr/prefect.json is damaged", ""),
    "server is a folder": (folder(".harr/prefect.json"), "warn", "Prefect", ".harr/prefect.json is damaged", ""),
    "owner": (text(".harr/owners/1.json", "[1]"), "ok", "processes", "", ""),
    "report": (half_written, "warn", "reports", "reports of stage train for http://127.0.0.1:9", ""),
    "stages, settings": (text(".dvc/config", "garbage"), "fail", "DVC settings", "cannot be read", "Invalid line"),
    "stages, settings in no UTF-8": (text(".dvc/config", b"\xff"), "fail", "DVC settings", "cannot be read", "codec"),
    "settings with a per cent": (text(".dvc/config", "[core]\nremote = %(x\n"), "warn", "DVC analytics", "is on", ""),
    "pins": (text("constraints.txt", "torch==b==c\n"), "warn", "versions", "(pinned b==c)", ""),
    "pins in no UTF-8": (text("constraints.txt", b"\xff"), "fail", "versions", "UnicodeDecodeError", ""),
    "stages, DVC's lock": (folder(".dvc/tmp/rwlock"), "fail", "stages", "rwlock cannot be read", "rm -r .dvc/"),
    "stages, a list": (text("dvc.lock", "[1]"), "fail", "stages", "expected a dictionary", "expected a dictionary"),
    "stages in no UTF-8": (text("dvc.lock", b"\xff"), "fail", "stages", "is not valid utf-8", "is not valid utf-8"),
    "stages of no path": (text("dvc.lock", LOCK), "fail", "stages", "validation failed", "validation failed"),
    "stages, numbers": (text("dvc.lock", "stages: {download: 1}"), "fail", "stages", "failed", "validation failed"),
    "stages, a folder": (folder("dvc.lock"), "fail", "stages", "is not a .dvc file", "bring it back with git"),
    "index": (text("data/index/manifest.json", '{"identity": "a"}'), "fail", "index", "", ""),
    "runs": (text("mlflow.db", "garbage " * 200), "fail", "MLflow", "not a database", "not a database"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_a_finding_and_everything_else_is_told(name: str, project: Path) -> None:
    damage, level, subject, found, trouble = DAMAGES[name]
    damage(project)
    findings = examine(project, {})
    told = [one for one in findings if (one.level, one.subject) == (level, subject)]
    assert told and any(found in one.found for one in told), findings
    assert all("\n" not in one.found and (one.fix or one.level == "ok") for one in findings)
    assert {"git", "threads", "secrets", "disk", "temporary files"} <= {one.subject for one in findings}
    state = status(project, {})
    assert trouble in state.trouble and bool(trouble) == bool(state.trouble)
    assert bool(state.stages) != name.startswith("stages")


def test_a_check_with_a_bug_keeps_no_other_from_being_made(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def bug(*values: object) -> None:
        raise RuntimeError("first\nsecond")

    for module, check in ((stages, "read_stages"), (addresses, "check_prefect")):
        monkeypatch.setattr(module, check, bug)
    findings = examine(project, {})
    broken = [(one.subject, one.found) for one in findings if one.level == "fail"]
    said = "cannot be looked at (RuntimeError: first second)"
    assert ("stages", said) in broken and ("Prefect", said) in broken
    assert status(project, {}).trouble == f"stages: {said}; mend or remove what it reads"
