"""A server's absence loses nothing that is on disk: reports left behind, kills, and a server that stops."""

import contextlib
import shutil
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from flows import cli
from flows.status import list_unsent, status
from harr.errors import ServiceUnavailable
from harr.io.files import digest_of, write_text
from harr.params import Params
from tasks.paths import NOTES, RUNS
from tasks.tracking import report as reports, run as tracking
from tasks.tracking.report import Report, send_left, send_reports
from tasks.tracking.run import tracked_run

ROOT = Path(__file__).parents[3]
DEAD = {"host": "elsewhere", "process": "no process"}


def left(address: str, stage: str = "train", **values: Any) -> Report:
    """Leave a stage's report on disk and return it."""
    ended = {"status": "FINISHED", "ended": 2000, "points": [["loss", 3.0, 1000, 0]]}
    named = {"name": f"1-{stage}-1", "address": address, "stage": stage, "experiment": "harr", "execution": "one"}
    report = Report(**{**named, **DEAD, "begun": 1000, "revisions": {}, "params": {"seed": "0"}, **ended, **values})
    report.write()
    return report


def stage_runs(client: MlflowClient) -> list[Any]:
    """Return the runs of stages, newest first."""
    return [run for run in client.search_runs(["1"]) if "harr.stage" in run.data.tags]


def send_here() -> list[str]:
    """Send what was left for this test's store."""
    client = MlflowClient()
    return send_left(lambda address: client if address == client.tracking_uri else None)


def dump(database: Path) -> list[str]:
    """Return all rows of a store."""
    with contextlib.closing(sqlite3.connect(database)) as base:
        return sorted(base.iterdump())


@pytest.mark.fault(24)
def test_a_repeated_report_changes_nothing(stored: Path) -> None:
    client = MlflowClient()
    write_text(Path("curve.svg"), "<svg/>")
    whole = {
        "points": [["loss", 3.0, 1000, 0], ["loss", float("nan"), 1500, 1]],
        "datasets": [["questions", "0" * 32, "data/questions", "training"]],
        "artifacts": [["curve.svg", "plots", ""]],
        "tags": {"version": "7"},
    }
    report = left(client.tracking_uri, **whole)
    assert send_here() == ["reported to MLflow: stage train, FINISHED"] and not list_unsent(stored)
    (run,), before = stage_runs(client), dump(stored / "mlflow.db")
    assert run.data.tags["version"] == "7" and run.data.params == {"seed": "0"} and run.info.end_time == 2000
    assert len(client.get_metric_history(run.info.run_id, "loss")) == 2 and len(run.inputs.dataset_inputs) == 1
    for again in (report, replace(report, status="RUNNING", host=reports.platform.node())):  # killed in between
        again.write()
        send_here()
        assert dump(stored / "mlflow.db") == before and not list(NOTES.iterdir())


@pytest.mark.fault(24)
@pytest.mark.parametrize("damage", ["{broken", "[1]", "{}", '{"name": 1}'])
def test_a_damaged_note_is_put_aside_and_keeps_no_other_waiting(damage: str, stored: Path) -> None:
    client = MlflowClient()
    write_text(NOTES / "0-embed-1.json", damage)
    left(client.tracking_uri)
    aside, sent = send_here()
    assert aside.startswith(f"warning: {NOTES}/0-embed-1.json is damaged (") and "\n" not in aside
    assert aside.endswith(f"the note is now {NOTES}/0-embed-1.json.aside, and the others go on")
    assert "stage train" in sent and [path.name for path in NOTES.iterdir()] == ["0-embed-1.json.aside"]
    assert send_here() == []


def test_what_a_living_stage_or_another_process_has_in_hand_is_left_to_it(stored: Path) -> None:
    client = MlflowClient()
    left(client.tracking_uri, status="RUNNING")  # of another machine
    left("http://127.0.0.1:9", stage="embed")  # for another server
    with tracked_run("filter", Params.load()) as run:
        assert send_here() == [] and len(list(NOTES.glob("*.json"))) == 3
        run.report.write()


def test_two_processes_that_send_at_once_make_one_run(stored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make = reports._make
    monkeypatch.setattr(reports, "_make", lambda *values: time.sleep(0.3) or make(*values))
    client = MlflowClient()
    client.create_experiment("harr")
    left(client.tracking_uri)
    with ThreadPoolExecutor() as threads:
        lines = [threads.submit(send_here) for _ in range(2)]
    assert sorted(len(one.result()) for one in lines) == [0, 1] and len(stage_runs(client)) == 1


@pytest.mark.fault(24)
def test_a_file_that_is_gone_or_changed_since_is_passed_over_with_one_line(stored: Path) -> None:
    client = MlflowClient()
    for name in ("same.svg", "gone.svg", "changed.svg"):
        write_text(Path(name), "<svg/>")
    left(client.tracking_uri, artifacts=[[name, "", ""] for name in ("same.svg", "gone.svg", "changed.svg")])
    Path("gone.svg").unlink()
    write_text(Path("changed.svg"), "<svg></svg>")
    _, refused = send_here()
    assert refused == "warning: MLflow refused of stage train: artifact: gone.svg is gone and 1 more"
    (run,) = stage_runs(client)
    assert [file.path for file in client.list_artifacts(run.info.run_id)] == ["same.svg"]
    left(client.tracking_uri, artifacts=[["changed.svg", "", ""]])
    write_text(Path("changed.svg"), "<svg/>")
    assert send_here()[1].endswith("artifact: changed.svg was changed since")
    assert digest_of(Path("changed.svg")) == digest_of(Path("same.svg"))


def test_a_folder_of_an_older_version_keeps_its_reports_and_the_others_are_sent(
    workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    monkeypatch.setattr(reports, "client_of", seen.append)
    for name in ("later", "old", "without"):
        folder = RUNS / name
        (folder / NOTES).mkdir(parents=True)
        (folder / "params.yaml").write_text("seed: 0\nno_such_section: 1\n")
        if name != "without":
            with contextlib.chdir(folder):
                left("http://127.0.0.1:9", stage=name)
    shutil.copy("params.yaml", RUNS / "later/params.yaml")
    (line,) = send_reports()
    assert line.startswith(".harr/runs/old: warning: its reports are not sent: ") and "no_such_section" in line
    assert "\n" not in line and seen == ["http://127.0.0.1:9"]


def test_what_was_left_is_sent_with_the_password_of_today(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    monkeypatch.setattr(reports, "client_of", seen.append)
    for address in ("http://127.0.0.1:8", "http://127.0.0.1:9"):
        left(address, stage=address[-1])
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://me:secret@127.0.0.1:9")
    assert send_reports() == []
    assert sorted(seen) == ["http://127.0.0.1:8", "http://me:secret@127.0.0.1:9"]


@pytest.mark.fault(24)
def test_a_server_that_is_away_costs_a_stage_one_line(
    workplace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://me:secret@127.0.0.1:9")
    away = pytest.raises(ServiceUnavailable, match="the MLflow server does not answer")
    with tracked_run("merge", Params.load()) as run, away:
        run.send()  # as a registration does
    warning = capsys.readouterr().err
    assert warning.startswith("warning: the MLflow server does not answer (") and warning.count("\n") == 1
    assert warning.endswith("stage merge is reported later: `harr record`\n")
    (kept,) = list_unsent(workplace)
    assert "reports of stage merge for" in kept and not any("secret" in path.read_text() for path in NOTES.iterdir())


def test_a_long_stage_shows_its_points_while_it_computes(stored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracking, "LIVE_SECONDS", 0.05)
    client = MlflowClient()
    with tracked_run("train", Params.load()) as run:
        for step in range(200):
            time.sleep(0.05)
            run.log(step, {"loss": 3.0 - step})
            if step > 3 and any("loss" in one.data.metrics for one in client.search_runs(["1"])):
                break
        assert {one.info.status for one in client.search_runs(["1"])} == {"RUNNING"}
    (made,) = stage_runs(client)
    losses = client.get_metric_history(made.info.run_id, "loss")
    assert [point.step for point in losses] == list(range(step + 1)), "each of them once"
    assert made.info.status == "FINISHED"


def test_what_waits_is_named_by_the_status_and_sent_by_the_command_they_name(
    workplace: Path, empty_store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The server is a database that does not exist at first; one report waits here, one in a recipe's folder."""

    def said(*words: str) -> str:
        with pytest.raises(SystemExit) as end:
            cli.main(*words)
        assert not end.value.code
        return capsys.readouterr().out

    address, place = f"sqlite:///{workplace}/later.db", workplace / ".harr/runs/smoke"
    left(address)
    place.mkdir(parents=True)
    shutil.copy("params.yaml", place)
    with contextlib.chdir(place):
        write_text(Path("curve.svg"), "<svg/>")
        left(address, stage="arms", artifacts=[["curve.svg", "plots", ""]])
    shutil.copy(ROOT / "dvc.yaml", workplace)
    here, there = (line for line in status(workplace, {}).unfinished if "reports of stage" in line)
    assert here.startswith("work/mlflow: reports of stage train for sqlite:///")
    assert there.startswith(".harr/runs/smoke/work/mlflow: reports of stage arms")
    shutil.copy(empty_store, "later.db")
    command = here.split("`")[1].split()
    first, second = said(*command[1:]).splitlines()
    assert first.startswith("reported to MLflow: stage train") and second.startswith(".harr/runs/smoke: reported to ")
    assert not list_unsent(workplace)
    client = MlflowClient(address)
    runs = {run.data.tags["harr.stage"]: run for run in stage_runs(client)}
    assert runs["train"].data.metrics == {"loss": 3.0} and len(client.search_runs(["1"])) == 3
    assert [file.path for file in client.list_artifacts(runs["arms"].info.run_id, "plots")] == ["plots/curve.svg"]
    assert said(*command[1:]) == "MLflow has everything\n"


@pytest.mark.fault(24)
@pytest.mark.services
def test_a_server_that_stops_mid_run_gets_everything_later(
    stored: Path, mlflow_server: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It stops during train, is down throughout arms, and comes back during evaluate."""
    params = Params.load()
    write_text(Path("curve.svg"), "<svg/>")
    write_text(Path("plots/a.txt"), "a")
    mlflow_server.start()
    with tracked_run("train", params) as run:
        run.log(0, {"loss": 3.0})
        run.send()
        mlflow_server.stop()
        run.log(1, {"loss": 2.0})
        run.tag(version="7")
        run.artifact(Path("curve.svg"), "plots")
        run.artifact(Path("plots"), "more")
        run.log(2, {"loss": float("nan")})
        run.record("train", {"steps": 3.0})
    warning = capsys.readouterr().err
    assert "does not answer" in warning and "stage train is reported later" in warning and warning.count("\n") == 1
    with tracked_run("arms", params) as run:
        run.log(0, {"loss": 1.0})
    (left,) = list_unsent(stored)
    assert "reports of stage train, arms for" in left
    with tracked_run("evaluate", params) as run:
        run.log(0, {"recall": 0.5})
        mlflow_server.start()
    assert not list_unsent(stored) and not list(NOTES.iterdir())
    output = capsys.readouterr().err
    assert "reported to MLflow: stage train, FINISHED\nreported to MLflow: stage arms, FINISHED\n" in output
    client = MlflowClient()
    runs = {run.data.tags["harr.stage"]: run for run in stage_runs(client)}
    assert set(runs) == {"train", "arms", "evaluate"} and len(client.search_runs(["1"])) == 4
    assert {one.info.status for one in client.search_runs(["1"])} == {"FINISHED"}
    losses = client.get_metric_history(runs["train"].info.run_id, "loss")
    assert [(point.step, point.value) for point in losses][:2] == [(0, 3.0), (1, 2.0)] and len(losses) == 3
    assert runs["train"].data.tags["version"] == "7" and runs["train"].data.metrics["train/steps"] == 3.0
    assert runs["arms"].data.params["train.steps"] == "3"
    assert runs["arms"].info.start_time < runs["evaluate"].info.start_time
    for folder, path in {"plots": "plots/curve.svg", "more": "more/a.txt"}.items():
        assert [file.path for file in client.list_artifacts(runs["train"].info.run_id, folder)] == [path]
