"""A server that goes away loses nothing: journals on disk, order, kills, and a real MLflow server that stops."""

import contextlib
import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from flows.doctor.folders import check_reports, kept_reports
from flows.doctor.status import status
from flows.server import free_port
from harr.errors import DamagedFile, ServiceUnavailable
from harr.io.files import write_text
from harr.params import Params
from tasks.tracking import run as tracking
from tasks.tracking.run import tracked_run
from tasks.tracking.spool import REFUSED, SPOOL, Journal, Refused, remember, send_left, spool_of, waiting

ROOT = Path(__file__).parents[3]


def writes(count: int) -> list[dict[str, Any]]:
    """Numbered writes."""
    return [{"do": "points", "number": number} for number in range(count)]


class Recorder:
    """A server that takes ``room`` writes, then fails."""

    def __init__(self, room: int = 99) -> None:
        self.room, self.seen = room, []

    def __call__(self, place: dict[str, str], write: dict[str, Any]) -> dict[str, str]:
        if len(self.seen) == self.room:
            raise ServiceUnavailable("down")
        if write.get("bad"):
            raise Refused("no such run")
        self.seen.append(write["number"])
        return place | {"run": "made"}


def test_a_replay_that_breaks_goes_on_where_it_was(workplace: Path) -> None:
    journal = Journal(SPOOL, "1-train")
    for write in writes(5):
        journal.add({}, write)
    assert len(journal) == 5
    first, second = Recorder(room=3), Recorder()
    with pytest.raises(ServiceUnavailable):
        journal.send(first)
    assert len(journal) == 2
    assert journal.send(second) == {"run": "made"}
    assert (first.seen, second.seen) == ([0, 1, 2], [3, 4])
    assert not journal and not waiting(SPOOL)
    journal.add({"run": "made"}, {"do": "points", "number": 5})
    assert len(journal) == 1
    journal.close()


@pytest.mark.parametrize("damage", [b"{broken", b"[1]", b"{}", b"\xff"])
@pytest.mark.parametrize("file", ["1-embed.jsonl", "1-embed.done"])
def test_a_damaged_journal_is_put_aside_and_keeps_no_other_waiting(
    file: str, damage: bytes, workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, numbers in (("1-embed", (0, 1)), ("2-train", (2, 3))):
        journal = Journal(SPOOL, name)
        for number in numbers:
            journal.add({}, {"do": "points", "number": number})
        journal.close()
    path = SPOOL / file
    lines = path.read_bytes().splitlines() if file.endswith("l") else [b""]
    path.write_bytes(b"\n".join([*lines[:-1], damage]) + b"\n")
    server = Recorder()
    assert send_left(SPOOL, server) == 1
    assert server.seen == ([0, 2, 3] if file.endswith("l") else [2, 3])
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and f"warning: {path}" in said and "is damaged (" in said
    assert f"the journal is now {SPOOL}/1-embed.jsonl.damaged, and the others go on" in said
    assert not waiting(SPOOL) and sorted(path.name for path in SPOOL.iterdir()) == [
        "1-embed.done.damaged",
        "1-embed.jsonl.damaged",
    ]
    assert send_left(SPOOL, server) == 0


def test_a_damaged_store_and_a_damaged_note_of_a_run_are_one_line(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    note = spool_of(f"sqlite:///{workplace}/mlflow.db") / "1.running"
    write_text(note, "[1]")
    with tracked_run("embed", Params.load()):
        pass
    assert f"{note} is damaged (a list, expected an object); it is removed" in capsys.readouterr().err
    assert not note.exists()
    (workplace / "mlflow.db").rename(workplace / "old.db")
    (workplace / "other.db").write_bytes(b"garbage " * 1000)
    params = Params.load()
    other = params.tracking.model_copy(update={"uri": f"sqlite:///{workplace}/other.db"})
    damaged = r"the MLflow store, mlflow.db or what tracking.uri names, is damaged \(file is not a database\); restore"
    with (
        pytest.raises(DamagedFile, match=damaged),
        tracked_run("embed", params.model_copy(update={"tracking": other})),
    ):
        pass


def test_what_a_killed_stage_left_is_sent_by_the_next_without_its_torn_line(workplace: Path) -> None:
    code = """
import os
from tasks.tracking.spool import SPOOL, Journal
journal = Journal(SPOOL, "1-train")
journal.add({}, {"do": "points", "number": 0})
journal.add({}, {"do": "points", "number": 1})
journal.file.write(b'{"do": "poi'); journal.file.flush()
os.kill(os.getpid(), 9)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -signal.SIGKILL
    server = Recorder()
    assert send_left(SPOOL, server) == 1 and server.seen == [0, 1]
    assert not waiting(SPOOL)


def test_a_journal_in_use_is_left_to_its_writer_and_a_refused_write_does_not_stop_the_rest(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine, server = Journal(SPOOL, "1-train"), Recorder()
    mine.add({}, {"do": "tags", "number": 0, "bad": True})
    mine.add({}, {"do": "points", "number": 1})
    assert send_left(SPOOL, server) == 0 and server.seen == []
    mine.close()
    assert send_left(SPOOL, server) == 1 and server.seen == [1]
    assert "MLflow refused a write (tags): no such run" in capsys.readouterr().err
    assert json.loads((SPOOL / REFUSED).read_text())["bad"]


def test_many_refused_writes_are_counted(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    journal = Journal(SPOOL, "1-train")
    for number in range(3):
        journal.add({}, {"do": "tags", "number": number, "bad": True})
    journal.close()
    assert send_left(SPOOL, Recorder()) == 1
    first, total = capsys.readouterr().err.splitlines()
    assert "refused a write (tags)" in first and "refused 3 writes of stage train" in total


def test_an_artifact_is_sent_as_it_was_when_it_was_reported(workplace: Path) -> None:
    Path("report.html").write_text("first")
    journal = Journal(SPOOL, "1-evaluate")
    kept = journal.keep(Path("report.html"))
    Path("report.html").write_text("second")
    assert (kept.name, kept.read_text()) == ("report.html", "first")


def test_a_stage_that_needs_the_server_ends_in_one_line(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It answered before, so the stage begins; the registry cannot wait for ever."""
    address = "http://127.0.0.1:9"
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    monkeypatch.setattr(tracking, "WAIT_SECONDS", 0.2)
    remember(address)
    told = pytest.raises(ServiceUnavailable, match=r"did not answer for 0 s and stage merge cannot go on without it")
    with told, tracked_run("merge", Params.load()) as run:
        run.wait()
    assert len(waiting(spool_of(address))) == 1


def test_what_waits_is_named_by_doctor_and_status_and_sent_by_the_command_they_name(
    workplace: Path, empty_store: Path
) -> None:
    """The server is a database that is not there at first."""
    address, journal = f"sqlite:///{workplace}/later/mlflow.db", Journal(spool_of("later"), "1-train")
    write_text(spool_of("later") / "address", address + "\n")
    assert kept_reports(workplace) == [] and check_reports(workplace, busy=False)[0].level == "ok"
    opening = {"stage": "train", "experiment": "harr", "execution": "one", "started": 1000, "name": "1-train"}
    journal.add({}, {"do": "open", **opening, "tags": {}, "params": []})
    journal.add({}, {"do": "points", "points": [["loss", 3.0, 1000, 0]]})
    journal.close()
    (found,) = check_reports(workplace, busy=False)
    assert found.level == "warn" and "2 writes of stage train for sqlite:///" in found.found
    assert check_reports(workplace, busy=True)[0].level == "ok"
    shutil.copy(ROOT / "dvc.yaml", workplace)
    assert any("2 writes of stage train" in line for line in status(workplace, {}).leftovers)
    Path("later").mkdir()
    shutil.copy(empty_store, "later/mlflow.db")
    command = found.fix.split("`")[1].split()
    done = subprocess.run([sys.executable, *command[1:]], capture_output=True, text=True, check=True)
    assert "what 1 stages had kept" in done.stdout and check_reports(workplace, busy=False)[0].level == "ok"
    (run,) = [one for one in MlflowClient(address).search_runs(["1"]) if one.data.tags.get("harr.stage")]
    assert run.data.metrics == {"loss": 3.0}
    done = subprocess.run([sys.executable, *command[1:]], capture_output=True, text=True, check=True)
    assert done.stdout == "nothing waits to be sent\n"


def test_what_the_run_of_a_recipe_keeps_is_found_and_sent_from_the_root(
    workplace: Path, empty_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its journal names the copy of a file from the recipe's folder."""
    address, place = f"sqlite:///{workplace}/later.db", workplace / ".harr/runs/smoke"
    place.mkdir(parents=True)
    shutil.copy("params.yaml", place)
    with contextlib.chdir(place):
        write_text(spool_of("later") / "address", address + "\n")
        journal = Journal(spool_of("later"), "1-train")
        opening = {"stage": "train", "experiment": "harr", "execution": "one", "started": 1000, "name": "1-train"}
        journal.add({}, {"do": "open", **opening, "tags": {}, "params": []})
        write_text(Path("curve.svg"), "<svg/>")
        journal.add({}, {"do": "artifact", "path": str(journal.keep(Path("curve.svg"))), "folder": "plots"})
        journal.close()
    (found,) = check_reports(workplace, busy=False)
    assert found.level == "warn" and "2 writes of stage train" in found.found
    assert "(.harr/runs/smoke/work/spool)" in found.found
    shutil.copy(ROOT / "dvc.yaml", workplace)
    assert any(line.startswith(".harr/runs/smoke/work/spool: 2 writes") for line in status(workplace, {}).leftovers)
    shutil.copy(empty_store, "later.db")
    monkeypatch.setenv("_MLFLOW_SERVER_ARTIFACT_ROOT", str(workplace / "kept"))
    done = subprocess.run([sys.executable, "-m", "flows.send"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(".harr/runs/smoke: sent to MLflow at ") and done.stdout.count("\n") == 1
    assert check_reports(workplace, busy=False)[0].level == "ok"
    client = MlflowClient(address)
    (run,) = [one for one in client.search_runs(["1"]) if one.data.tags.get("harr.stage")]
    assert [file.path for file in client.list_artifacts(run.info.run_id, "plots")] == ["plots/curve.svg"]


def test_a_server_that_is_down_takes_little_of_the_work_s_time(
    workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A try takes seconds, since the client tries several times; the pause after it grows with it."""
    address = f"http://127.0.0.1:{free_port()}"
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")  # pauses of 4 seconds at least
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    monkeypatch.setattr(tracking, "RETRY_SECONDS", 0.1)
    monkeypatch.setattr(tracking, "FLUSH_SECONDS", -1.0)
    remember(address)
    with tracked_run("train", Params.load()) as run:
        time.sleep(0.2)
        began = time.monotonic()
        run.log(0, {"loss": 3.0})
        assert time.monotonic() - began < 3.5, "the step waited for a server that is down"
        assert len(run.journal) == 2
        monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")  # the end asks once more


@pytest.mark.servers
def test_a_server_that_stops_mid_run_gets_everything_later_in_order(
    stored: Path,
    mlflow_server: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It stops while train runs, is down for the whole of arms, and comes back while evaluate runs."""
    monkeypatch.setattr(tracking, "FLUSH_SECONDS", -1.0)
    monkeypatch.setattr(tracking, "RETRY_SECONDS", 600.0)
    params = Params.load()
    Path("curve.svg").write_text("<svg/>")
    Path("plots").mkdir()
    Path("plots/a.txt").write_text("a")
    mlflow_server.start()
    with tracked_run("train", params) as run:
        run.log(0, {"loss": 3.0})
        mlflow_server.stop()
        run.log(1, {"loss": 2.0})
        run.tag(version="7")
        run.artifact(Path("curve.svg"), "plots")
        run.artifact(Path("plots"), "more")
        Path("curve.svg").unlink()
        run.log(2, {"loss": float("nan")})
        run.record("train", {"steps": 3.0})
    told = capsys.readouterr().err
    assert "does not answer" in told and "follow with the next stage" in told and told.count("\n") == 2
    with tracked_run("arms", params) as run:
        run.log(0, {"loss": 1.0})
    spool = spool_of(run.client.tracking_uri)
    assert len(waiting(spool)) == 2 and json.loads(Path("metrics/train.json").read_text()) == {"steps": 3.0}
    with tracked_run("evaluate", params) as run:
        run.log(0, {"recall": 0.5})
        mlflow_server.start()
        run.log(1, {"recall": 0.6})
        assert len(waiting(spool)) == 3, "asked again too soon"
        monkeypatch.setattr(tracking, "RETRY_SECONDS", 0.0)
        run.log(2, {"recall": 0.7})
        assert not waiting(spool)
    assert "MLflow answers again: 3 writes of stage evaluate were sent" in capsys.readouterr().err
    assert [path.name for path in spool.iterdir()] == ["address"]
    client = MlflowClient()
    runs = {r.data.tags.get("harr.stage", "pipeline"): r for r in client.search_runs(["1"])}
    assert set(runs) == {"pipeline", "train", "arms", "evaluate"} and len(client.search_runs(["1"])) == 4
    assert {one.info.status for one in runs.values()} == {"FINISHED"}
    losses = client.get_metric_history(runs["train"].info.run_id, "loss")
    assert [(point.step, point.value) for point in losses][:2] == [(0, 3.0), (1, 2.0)] and len(losses) == 3
    recalls = client.get_metric_history(runs["evaluate"].info.run_id, "recall")
    assert [point.value for point in recalls] == [0.5, 0.6, 0.7]
    assert runs["train"].data.tags["version"] == "7" and runs["train"].data.metrics["train.steps"] == 3.0
    assert runs["arms"].data.params["train.steps"] == "3"
    assert runs["arms"].info.start_time < runs["evaluate"].info.start_time
    where = {"plots": "plots/curve.svg", "more": "more/a.txt"}
    for folder, path in where.items():
        assert [file.path for file in client.list_artifacts(runs["train"].info.run_id, folder)] == [path]
