"""Runs in a real SQLite store: parents, children, figures, inputs, and how they end."""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from harr.io.files import digest_of
from harr.params import Params
from tasks.paths import NOTES
from tasks.tracking.run import tracked_run


@pytest.fixture
def client(stored: Path, monkeypatch: pytest.MonkeyPatch) -> MlflowClient:
    """The store to which this test's stages write."""
    monkeypatch.setenv("HARR_EXECUTION", "one")
    return MlflowClient(f"sqlite:///{stored}/mlflow.db")


def runs(client: MlflowClient) -> dict[str, Any]:
    """Return all runs by stage, with the parent under 'pipeline'."""
    experiment = client.get_experiment_by_name("harr")
    return {r.data.tags.get("harr.stage", "pipeline"): r for r in client.search_runs([experiment.experiment_id])}


def test_stages_are_children_of_one_run_with_params_figures_and_inputs(client: MlflowClient) -> None:
    params = Params.load()
    Path("questions.jsonl").write_text("{}\n")
    with tracked_run("download", params) as run:
        run.record("download", {"passages": 400.0, "share": 1 / 3})
        run.dataset("questions", Path("questions.jsonl"), "questions")
    with tracked_run("train", params) as run:
        for step in range(3):
            run.log(step, {"reward_mean": step / 2})
    found = runs(client)
    assert set(found) == {"pipeline", "download", "train"}
    for stage in ("download", "train"):
        assert found[stage].data.tags["mlflow.parentRunId"] == found["pipeline"].info.run_id
        assert found[stage].info.status == "FINISHED"
    read = {name.split(".")[0] for name in found["train"].data.params}  # the stage's parameters; its parent has all
    assert {"seed", "train"} <= read and not {"download", "evaluate"} & read
    assert {name.split(".")[0] for name in found["download"].data.params} == {"download"}
    assert found["pipeline"].data.params["train.optimizer.learning_rate"] == "0.0005"
    assert found["train"].info.run_name == "train (params.yaml)"
    assert re.fullmatch(r"\d\d-\d\d \d\d:\d\d params.yaml", found["pipeline"].info.run_name)
    curve = client.get_metric_history(found["train"].info.run_id, "reward_mean")
    assert [(point.step, point.value) for point in curve] == [(0, 0.0), (1, 0.5), (2, 1.0)]
    figures = json.loads(Path("metrics/download.json").read_text())
    assert figures == {"passages": 400.0, "share": 0.333333}
    notes = {name: one.data.tags.get("mlflow.note.content", "") for name, one in found.items()}
    assert notes["download"] == "Make or fetch passages and questions: function."
    assert notes["train"] == "Train the retriever by grpo."
    with tracked_run("evaluate", params) as run:
        run.headline({"answer_f1": 0.5}, "trained is better")
    with tracked_run("merge", params) as run:
        run.tag(version="3")
    found = runs(client)
    assert found["pipeline"].data.tags["mlflow.note.content"] == "trained is better"
    assert found["pipeline"].data.tags["version"] == found["merge"].data.tags["version"] == "3"
    for stage in ("download", "pipeline"):
        (given,) = found[stage].inputs.dataset_inputs
        assert given.dataset.digest == digest_of(Path("questions.jsonl"))[:32]


@pytest.mark.parametrize(("error", "status"), [(ValueError("no"), "FAILED"), (SystemExit(143), "KILLED")])
def test_a_run_that_breaks_says_so(client: MlflowClient, error: BaseException, status: str) -> None:
    with pytest.raises(type(error)), tracked_run("train", Params.load()) as run:
        run.log(0, {"loss": 1.0})
        raise error
    found = runs(client)
    assert found["train"].info.status == found["pipeline"].info.status == status
    assert found["train"].data.metrics == {"loss": 1.0}


@pytest.mark.services
def test_the_thread_that_shows_points_and_the_end_of_the_stage_do_not_ask_mlflow_at_once(client: MlflowClient) -> None:
    """A stage that logs only at its end starts the thread there: both load MLflow and open the run, one at a time."""
    code = (
        "from harr.params import Params\nfrom tasks.tracking import run as tracking\n"
        "tracking.LIVE_SECONDS = -1.0\n"
        "with tracking.tracked_run('embed', Params.load()) as run:\n    run.log(0, {'passages': 3.0})\n"
    )
    for number in range(1, 5):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        stages = client.search_runs(["1"], "tags.`harr.stage` = 'embed'")
        assert len(stages) == number and {one.info.status for one in stages} == {"FINISHED"}
        assert {one.data.metrics["passages"] for one in stages} == {3.0}


@pytest.mark.fault(25)
@pytest.mark.services
def test_a_run_that_a_kill_left_open_is_closed_by_the_next_stage(
    client: MlflowClient, stored: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The killed stage's run and its parent end as KILLED; a run whose process is alive stays open."""
    code = (
        "import os\nfrom harr.params import Params\nfrom tasks.tracking.run import tracked_run\n"
        "with tracked_run('train', Params.load()) as run:\n"
        "    run.log(0, {'loss': 1.0})\n    run.send()\n    os.kill(os.getpid(), 9)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -signal.SIGKILL
    found = runs(client)
    assert found["train"].info.status == found["pipeline"].info.status == "RUNNING"
    killed, parent = found["train"].info.run_id, found["pipeline"].info.run_id
    monkeypatch.setenv("HARR_EXECUTION", "two")
    with tracked_run("filter", Params.load()) as alive:
        alive.send()
        with tracked_run("merge", Params.load()):
            pass
        now = [client.get_run(run).info for run in (killed, parent)]
        assert [(info.status, bool(info.end_time)) for info in now] == [("KILLED", True)] * 2
        assert runs(client)["filter"].info.status == "RUNNING"  # its process is this one
    message = capsys.readouterr().err
    assert message.startswith(f"MLflow run {killed} of stage train was cut off by a kill and is closed as KILLED")
    assert message.count("\n") == 1
    assert client.get_run(killed).data.tags["harr.killed"].startswith("its process was gone")
    assert not list(NOTES.iterdir())


@pytest.mark.fault(30)
def test_a_password_in_an_address_is_neither_kept_nor_logged(
    client: MlflowClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = "http://me:secret@127.0.0.1:9"
    params = Params.load()
    index = params.index.model_copy(update={"uri": address})
    with tracked_run("index", params.model_copy(update={"index": index})) as run:
        pass
    assert client.get_run(run.run_id).data.params["index.uri"] == "http://127.0.0.1:9"


def test_a_field_whose_name_mlflow_refuses_is_logged_under_another(client: MlflowClient) -> None:
    own = {name: ["mine.jsonl"] for name in ("passages", "train", "test")}
    download = {"dataset": "jsonl", **own, "train_where": {"level (1-5)": 3}}
    with tracked_run("download", Params.model_validate(Params.load().model_dump() | {"download": download})) as run:
        pass
    assert client.get_run(run.run_id).data.params["download.train_where.level _1-5_"] == "3"
