"""`harr status` survives damage: one line names it, and everything else is shown."""

from pathlib import Path

import pytest

from flows import stages
from flows.finding import BUG
from flows.status import status
from flows.terminal import status_lines

LOCK = "stages:\n  download:\n    cmd: a\n    deps:\n    - {}\n"
UNSENT = ["work/mlflow: reports of stage train for http://127.0.0.1:9, which did not answer; `harr record`"]
NOTE = '{"address": "http://127.0.0.1:9", "stage": "train", "status": "FINISHED"}'
FOLDER = None
"""A folder where a file belongs."""
Files = dict[str, str | bytes | None]
# Files by path, and parts of the status.
OUTSIDE_DVC: list[tuple[Files, list[str]]] = [
    (
        {
            "work/mlflow/1-train-1.json": NOTE,
            ".dvc/config": "[core]\nremote = %(x\nno_scm = true\n",
            ".dvc/tmp/rwlock": "",  # so that the status does not ask DVC
            "mlflow.db": "garbage " * 200,
        },
        ["rm .dvc/tmp/rwlock", "not a database"],
    ),
    ({"work/mlflow/1-train-1.json": NOTE[:9], ".dvc/tmp/rwlock": FOLDER}, ["1-train-1.json", "rm -r .dvc/"]),
]
OF_DVC: list[tuple[Files, list[str]]] = [
    ({".dvc/config": "garbage"}, ["Invalid line"]),
    ({"dvc.lock": "[1]"}, ["expected a dictionary"]),
    ({"dvc.lock": LOCK}, ["validation failed"]),
    (
        {"dvc.lock": f"<<<<<<< HEAD\n{LOCK}=======\n>>>>>>> other\n"},
        ["'./dvc.lock' is invalid (possible merge conflicts)"],
    ),
    ({"dvc.lock": FOLDER}, ["is not a .dvc file"]),
    ({"dvc.yaml": "stages: ["}, ["'./dvc.yaml' is invalid"]),
]


@pytest.mark.parametrize(
    ("files", "trouble"), [*OUTSIDE_DVC, *(pytest.param(*case, marks=pytest.mark.services) for case in OF_DVC)]
)
def test_damage_is_a_line_and_everything_else_is_shown(files: Files, trouble: list[str], project: Path) -> None:
    for name, content in files.items():
        path = project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if content is FOLDER:
            path.mkdir()
        else:
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
    state = status(project, {})
    assert all(words in state.trouble for words in trouble) and not state.stages
    assert not [line for line in status_lines(state) if "names none" in line]
    sent = [line for line in state.unfinished if "harr record" in line]
    assert sent == (UNSENT if files.get("work/mlflow/1-train-1.json") == NOTE else [])


def test_a_look_with_a_bug_keeps_no_other_from_being_made(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def bug(*values: object) -> None:
        raise RuntimeError("first\nsecond")

    monkeypatch.setattr(stages, "read_stages", bug)
    assert status(project, {}).trouble == f"stages: cannot be looked at (RuntimeError: first second); {BUG}"
