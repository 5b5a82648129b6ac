"""Damage that the doctor exists for does not end it: a finding names it, and the other checks are made."""

from pathlib import Path

import pytest

from flows import stages
from flows.doctor import servers
from flows.doctor.examine import examine
from flows.doctor.finding import BUG
from flows.status import status
from flows.terminal import status_lines

LOCK = "stages:\n  download:\n    cmd: a\n    deps:\n    - {}\n"
UNSENT = [
    "work/mlflow: reports of stage train for http://127.0.0.1:9, which did not answer; `harr record`",
    "work/mlflow: reports of stage ? (2-embed-1.json is damaged) for an unknown server, which did not answer; `harr record`",
]
NOTE = '{"address": "http://127.0.0.1:9", "stage": "train", "status": "FINISHED"}'
FOLDER = None
"""What stands where a file belongs."""
Files = dict[str, str | bytes | None]
# Files by path; findings that must be there, as level, subject and a part of what is found; and what the status says.
BESIDE: list[tuple[Files, list[tuple[str, str, str]], list[str]]] = [
    (
        {
            "work/mlflow/1-train-1.json": NOTE,
            "work/mlflow/2-embed-1.json": NOTE[:9],
            ".dvc/config": "[core]\nremote = %(x\nno_scm = true\n",
            ".dvc/tmp/rwlock": "",  # so that DVC is not asked
            "mlflow.db": "garbage " * 200,
        },
        [("ok", "MLflow", "sqlite:///mlflow.db")],
        ["rm .dvc/tmp/rwlock", "not a database"],
    ),
    ({".dvc/tmp/rwlock": FOLDER}, [], ["rm -r .dvc/"]),
]
OF_DVC: list[tuple[Files, list[tuple[str, str, str]], list[str]]] = [
    ({".dvc/config": "garbage"}, [], ["Invalid line"]),
    ({"dvc.lock": "[1]"}, [], ["expected a dictionary"]),
    ({"dvc.lock": LOCK}, [], ["validation failed"]),
    (
        {"dvc.lock": f"<<<<<<< HEAD\n{LOCK}=======\n>>>>>>> other\n"},
        [],
        ["'./dvc.lock' is invalid (possible merge conflicts)", "bring it back with git"],
    ),
    ({"dvc.lock": FOLDER}, [], ["is not a .dvc file", "bring it back with git"]),
    ({"dvc.yaml": "stages: ["}, [], ["'./dvc.yaml' is invalid", "bring it back with git"]),
]


@pytest.mark.parametrize(
    ("files", "expected", "trouble"), [*BESIDE, *(pytest.param(*case, marks=pytest.mark.services) for case in OF_DVC)]
)
def test_damage_is_a_finding_and_everything_else_is_told(
    files: Files, expected: list[tuple[str, str, str]], trouble: list[str], project: Path
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
    assert {"git", "secrets"} <= {one.subject for one in findings}
    state = status(project, {})
    assert all(words in state.trouble for words in trouble) and not state.stages
    assert not [line for line in status_lines(state) if "names none" in line]
    sent = [line for line in state.unfinished if "harr record" in line]
    assert not any(name.startswith("work/mlflow") for name in files) or sent == UNSENT


def test_a_check_with_a_bug_keeps_no_other_from_being_made(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def bug(*values: object) -> None:
        raise RuntimeError("first\nsecond")

    for module, check in ((stages, "read_stages"), (servers, "check_secrets")):
        monkeypatch.setattr(module, check, bug)
    findings = examine(project, {})
    said = "cannot be looked at (RuntimeError: first second)"
    assert [(one.subject, one.found) for one in findings if one.level == "fail"] == [("secrets", said)]
    assert status(project, {}).trouble == f"stages: {said}; {BUG}"


def test_a_section_that_no_package_reads_is_named(project: Path) -> None:
    text = (project / "params.yaml").read_text()
    (project / "params.yaml").write_text(f"{text}\nplugins: {{bridge: {{}}, brigde: {{}}}}\n")
    levels = {one.subject: one.level for one in examine(project, {}) if one.subject.startswith("plugins.")}
    assert levels["plugins.brigde"] == "warn"
