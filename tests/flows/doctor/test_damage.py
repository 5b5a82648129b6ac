"""Damage that the doctor exists for does not end it: a finding names it, and the other checks are made."""

from pathlib import Path

import pytest

from flows.doctor import addresses, stages
from flows.doctor.examine import examine
from flows.doctor.status import status

LOCK = "stages:\n  download:\n    cmd: a\n    deps:\n    - {}\n"
NOTE = '{"address": "http://127.0.0.1:9", "stage": "train", "status": "FINISHED"}'
FOLDER = None
"""What stands where a file belongs."""
Files = dict[str, str | bytes | None]
# Files by path; and findings that must be there: level, subject, and a part of what is found.
BESIDE: list[tuple[Files, list[tuple[str, str, str]], str]] = [
    (
        {
            ".harr/owners/1.json": "[1]",
            "work/mlflow/1-train-1.json": NOTE,
            "work/mlflow/2-embed-1.json": NOTE[:9],
            ".dvc/config": "[core]\nremote = %(x\nno_scm = true\n",
            ".dvc/tmp/rwlock": "",  # so that DVC is not asked
            "constraints.txt": "torch==b==c\n",
            "data/index/manifest.json": '{"identity": "a"}',
            "mlflow.db": "garbage " * 200,
        },
        [
            ("warn", "reports", "reports of stage train for http://127.0.0.1:9"),
            ("warn", "versions", "(pinned b==c)"),
            ("fail", "index", ""),
            ("fail", "MLflow", "not a database"),
        ],
        "not a database",
    ),
    (
        {"constraints.txt": b"\xff", ".dvc/tmp/rwlock": FOLDER},
        [
            ("fail", "versions", "UnicodeDecodeError"),
            ("fail", "stages", "rwlock cannot be read"),
        ],
        "rm -r .dvc/",
    ),
]
OF_DVC: list[tuple[Files, list[tuple[str, str, str]], str]] = [
    ({".dvc/config": "garbage"}, [("fail", "stages", "Invalid line")], "Invalid line"),
    ({"dvc.lock": "[1]"}, [("fail", "stages", "expected a dictionary")], "expected a dictionary"),
    ({"dvc.lock": LOCK}, [("fail", "stages", "validation failed")], "validation failed"),
    ({"dvc.lock": FOLDER}, [("fail", "stages", "is not a .dvc file")], "bring it back with git"),
    ({"dvc.yaml": "stages: ["}, [("fail", "stages", "'./dvc.yaml' is invalid")], "bring it back with git"),
]


@pytest.mark.parametrize(
    ("files", "expected", "trouble"), [*BESIDE, *(pytest.param(*case, marks=pytest.mark.services) for case in OF_DVC)]
)
def test_damage_is_a_finding_and_everything_else_is_told(
    files: Files, expected: list[tuple[str, str, str]], trouble: str, project: Path
) -> None:
    for name, content in files.items():
        path = project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if content is FOLDER:
            path.mkdir()
        else:
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
    findings = examine(project, {})
    for level, subject, found in expected:
        told = [one for one in findings if (one.level, one.subject) == (level, subject)]
        assert told and any(found in one.found for one in told), (subject, findings)
    assert all("\n" not in one.found and (one.fix or one.level == "ok") for one in findings)
    assert {"git", "secrets", "disk", "temporary files"} <= {one.subject for one in findings}
    state = status(project, {})
    assert trouble in state.trouble and not state.stages


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
