"""The command `harr` in a project's folder: what it prints, and its exit codes."""

import json
import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from flows.cli import app
from flows.terminal import section
from harr.io.files import write_json

ROOT = Path(__file__).parents[2]
HEAVY = ("torch", "prefect", "mlflow", "dvc", "pymilvus", "transformers", "numpy", "great_expectations", "sqlalchemy")


@pytest.fixture
def place(workplace: Path) -> Path:
    """A project in which nothing has run, and nothing is wrong."""
    shutil.copy(ROOT / "dvc.yaml", workplace)
    shutil.copytree(ROOT / ".dvc", workplace / ".dvc", ignore=shutil.ignore_patterns("tmp", "cache"))
    subprocess.run(["git", "init", "-q"], check=True)
    return workplace


def harr(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "flows.cli", *words],
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_nothing_wrong_is_exit_0(place: Path) -> None:
    done = harr("doctor")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "fail" not in done.stdout and "\033" not in done.stdout
    starts = {line.index(word) for line, word in ((line, line.split()[1]) for line in done.stdout.splitlines()[:3])}
    assert starts == {6}  # aligned


def test_preview_tells_and_exports_the_questions(place: Path) -> None:
    done = harr("preview", "--examples", "1", "--export", "questions.jsonl")
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in (place / "questions.jsonl").read_text().splitlines()]
    assert f"{len(rows):,} train questions" in done.stdout and "corpus: the fictional encyclopaedia" in done.stdout
    assert " GB to embed, " in done.stdout and " GB to train, " in done.stdout
    assert f"{rows[0]['id']}: {rows[0]['question']}" in done.stdout and rows[1]["question"] not in done.stdout
    assert not (place / "data").exists() and not (place / "work").exists()
    again = harr("preview", "--export", "questions.jsonl")
    assert (
        again.returncode == 1
        and again.stderr == "error: questions.jsonl exists and is left as it is; name another file\n"
    )
    away = harr("preview", "--export", "params.yaml/questions.jsonl")
    assert away.returncode == 1 and away.stderr.startswith("error: params.yaml/questions.jsonl: cannot be written (")
    told = json.loads(harr("preview", "--split", "test", "--json").stdout)
    assert told["split"] == "test" and told["questions"] > 0


def test_a_failure_is_exit_1_with_its_fix(place: Path) -> None:
    (place / ".dvc/tmp").mkdir(exist_ok=True)
    (place / ".dvc/tmp/rwlock").touch()
    done = harr("doctor", PREFECT_API_URL="http://127.0.0.1:9/api")
    assert done.returncode == 1 and done.stderr == ""
    assert "fix: rm .dvc/tmp/rwlock" in done.stdout and "PREFECT_API_URL http://127.0.0.1:9/api" in done.stdout
    assert "2 to mend" in done.stdout
    told = json.loads(harr("doctor", "--json", PREFECT_API_URL="http://127.0.0.1:9/api").stdout)
    failed = [one["subject"] for one in told["findings"] if one["level"] == "fail"]
    assert sorted(failed) == ["Prefect", "stages"]


def test_wrong_parameters_are_a_finding_and_the_rest_is_checked(place: Path) -> None:
    (place / "params.yaml").write_text("trian: {}\n")
    done = harr("doctor")
    assert done.returncode == 1 and done.stdout.startswith("fail  params.yaml")
    assert "no orphans" in done.stdout
    done = harr("status")
    assert done.returncode == 1 and done.stderr.startswith("error: params.yaml:")


@pytest.mark.parametrize("command", ["doctor", "status"])
def test_outside_a_project_one_line(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = harr(command, PYTHONPATH=str(ROOT))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: no dvc.yaml in") and done.stderr.count("\n") == 1


def test_status_of_a_project_in_which_nothing_ran(place: Path) -> None:
    write_json(place / "work/train/abc/checkpoint.json", {})
    (place / "data").mkdir()
    (place / "data/.corpus.tmp").touch()
    done = harr("status")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("never run") == 10 and "none registered yet" in done.stdout
    assert "work/train: 1 entries" in done.stdout and "data/.corpus.tmp: a temporary file" in done.stdout
    told = json.loads(harr("status", "--json").stdout)
    assert [stage["state"] for stage in told["stages"]] == ["never run"] * 10
    assert told["orphans"] == [] and told["versions"] == []


def test_status_says_what_it_could_not_read(place: Path) -> None:
    done = harr("status", MLFLOW_TRACKING_URI="http://127.0.0.1:9")
    assert done.returncode == 0 and "MLflow at http://127.0.0.1:9" in done.stdout


def test_colours_on_a_terminal_only(place: Path) -> None:
    ours, theirs = pty.openpty()
    environment = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    subprocess.run([sys.executable, "-m", "flows.cli", "doctor"], stdout=theirs, env=environment, check=False)
    os.close(theirs)
    assert b"\033[32mok\033[0m    params.yaml" in os.read(ours, 100_000)
    os.close(ours)


def test_columns_are_aligned_under_colours() -> None:
    plain = section("t", [("a", "b"), ("long", "c")], "")
    painted = section("t", [("\033[32ma\033[0m", "b"), ("long", "c")], "")
    assert [line.replace("\033[32m", "").replace("\033[0m", "") for line in painted] == plain


@pytest.mark.parametrize("command", ["", *(one.callback.__name__ for one in app.registered_commands)])
def test_help_of_every_command_loads_nothing_heavy(command: str, tmp_path: Path) -> None:
    code = (
        "import atexit, sys\nfrom flows.cli import main\n"
        f"atexit.register(lambda: print([name for name in {HEAVY!r} if name in sys.modules]))\n"
        f"main(*{[command] if command else []}, '--help')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    shown = done.stdout.replace("[ARGS]...", "").replace("}...", "}").replace(" ...", "")
    assert shown.startswith(f"Usage: harr {command}") and "..." not in shown  # no sentence is cut off
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("promot",), "Error: No such command 'promot'."),
        (("push",), "Error: Invalid value: name --dataset, --model or both"),
        (("evaluate", "--out", "mine.json"), "Error: Missing option '--questions'."),
        (("run", "--recipes", "smoke"), "Error: No such option: --recipes"),
        (("pull", "models:/a@champion"), "Error: Missing argument 'DIR'."),
    ],
)
def test_a_wrong_option_is_exit_2(words: tuple[str, ...], line: str, workplace: Path) -> None:
    done = harr(*words)
    assert (done.returncode, done.stdout) == (2, "") and line in done.stderr and "Traceback" not in done.stderr


def test_the_report_is_named_or_how_to_make_it(place: Path) -> None:
    done = harr("report")
    expected = "error: metrics/evaluate.json is missing; run `dvc repro evaluate`\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", expected)
    assert harr("report", "--send").stdout == "nothing waits to be sent\n"


def test_a_registry_that_is_not_there_and_a_model_that_is_not_are_one_line(place: Path) -> None:
    """As in a folder that has run nothing, and on a machine without a project."""
    done = harr("pull", "harr-retriever@champion", "out")
    assert done.returncode == 1 and done.stderr.startswith("error: ") and done.stderr.count("\n") == 1
    done = harr("register")
    assert done.stderr == "error: models/retriever holds no model; run `dvc pull` or `dvc repro`\n"
    assert not Path("out").exists() and not Path("models").exists()


def test_a_wrong_recipe_is_a_line_for_every_command_that_takes_one(place: Path) -> None:
    for command in ("run", "promote", "register", "rollback"):
        done = harr(command, "--recipe", "smok")
        assert done.returncode == 1 and done.stderr.startswith("error: no recipe 'smok'; there are: ")
        assert done.stderr.count("\n") == 1
