"""What a server's refusal or delay does to a stage: a real MLflow client against a server with set answers."""

import http.server
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from serving import running

from harr.errors import ServiceUnavailable
from harr.evaluate.summary import summarise
from harr.params import Params
from harr.services.mlflow_store import client_of
from tasks.paths import NOTES
from tasks.registry.register import register
from tasks.tracking.errors import Refused, service, uploading
from tasks.tracking.report import send_reports
from tasks.tracking.run import tracked_run


class Answers(http.server.BaseHTTPRequestHandler):
    """An artifact store that answers every upload with ``status``."""

    status = 403

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(self.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def store(stored: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Answers]]:
    """A database file whose runs keep their artifacts at an ``Answers``."""
    handler = type("StoreAnswers", (Answers,), {})
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.delenv("_MLFLOW_SERVER_ARTIFACT_ROOT", raising=False)  # left by a server that ran in this process
    Path("curve.svg").write_text("<svg/>")
    with running(handler) as address:
        MlflowClient().create_experiment("harr", artifact_location=f"{address}/api/2.0/mlflow-artifacts/artifacts")
        yield handler


def stage_runs() -> list[Any]:
    client = MlflowClient()
    experiment = client.get_experiment_by_name("harr")
    return [run for run in client.search_runs([experiment.experiment_id]) if run.data.tags.get("harr.stage")]


def test_a_refused_upload_costs_the_stage_a_line_and_nothing_else(
    store: type[Answers], capsys: pytest.CaptureFixture[str]
) -> None:
    with tracked_run("train", Params.load()) as run:
        run.artifact(Path("curve.svg"), "plots")
        run.log(0, {"loss": 3.0})
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "MLflow refused of stage train: artifact: curve.svg: HTTPError: 403" in error
    assert not list(NOTES.iterdir())
    (only,) = stage_runs()
    assert only.info.status == "FINISHED" and only.data.metrics == {"loss": 3.0}


def test_an_upload_that_fails_now_waits_and_one_whose_file_is_gone_is_passed_over(
    store: type[Answers], capsys: pytest.CaptureFixture[str]
) -> None:
    store.status = 503
    with tracked_run("train", Params.load()) as run:
        run.artifact(Path("curve.svg"), "plots")
        run.log(0, {"loss": 3.0})
    assert "stage train is reported later" in capsys.readouterr().err
    with pytest.raises(ServiceUnavailable):
        send_reports()
    assert len(list(NOTES.glob("*.json"))) == 1
    Path("curve.svg").unlink()
    sent, refused = send_reports()
    assert "reported to MLflow: stage train" in sent and "curve.svg is gone" in refused and not list(NOTES.iterdir())
    (only,) = stage_runs()
    assert only.info.status == "FINISHED" and only.data.metrics == {"loss": 3.0}


def test_no_version_is_registered_without_its_files(store: type[Answers]) -> None:
    Path("model").mkdir()
    Path("model/model.safetensors").write_text("x")
    params = Params.load()
    summary = summarise({"trained": [[{"id": "q1", "answer_f1": 1.0}]]}, resamples=10, seed=0)
    with pytest.raises(Refused, match="403"), tracked_run("merge", params) as run:
        register(run, params, "language_model", Path("model"), Path("evaluation"), {}, summary)
    assert MlflowClient().search_registered_models() == []


@pytest.mark.fault(24, 31)
def test_a_store_that_cannot_be_written_or_read_is_one_line(stored: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """As in a project on a read-only disk; MLflow logs a traceback of each such error."""
    client = client_of("sqlite:///file:mlflow.db?mode=ro&uri=true")
    message = (
        r"the MLflow store, mlflow.db or what tracking.uri names, cannot be used \(.*readonly database.*\); mend it"
    )
    with pytest.raises(ServiceUnavailable, match=message), service():
        client.create_registered_model("x")
    assert capfd.readouterr().err == ""
    Path("other.db").write_bytes(b"garbage " * 1000)
    message = r"the MLflow store, mlflow.db or what tracking.uri names, cannot be used \(.*not a database.*\); mend it"
    with pytest.raises(ServiceUnavailable, match=message), service():
        client_of(f"sqlite:///{stored}/other.db").search_experiments()


@pytest.mark.fault(24)
def test_processes_that_start_together_share_a_new_store(tmp_path: Path) -> None:
    """As jobs of `dvc queue start --jobs 2` in a new checkout: MLflow's migrations fail if two of them run at once."""
    address = f"sqlite:///{tmp_path}/mlflow.db"
    code = f"from harr.services.mlflow_store import client_of; print(client_of({address!r}).get_experiment('0').name)"
    together = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) for _ in range(2)]
    assert [process.communicate()[0] for process in together] == [b"Default\n"] * 2


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("UPDATE alembic_version SET version_num = 'cc1f77228345'", r"cannot be used \(.*found version cc1f77228345"),
        (
            "DROP TABLE experiments; DROP TABLE alembic_version; CREATE TABLE alembic_version (version_num TEXT);"
            "INSERT INTO alembic_version VALUES ('v3.2.0.a')",
            r"cannot be used \(Can't locate revision identified by 'v3\.2\.0\.a'\)",
        ),
        (
            "ALTER TABLE experiments RENAME COLUMN workspace TO other",
            r"cannot be used \(.*no such column: experiments\.",
        ),
    ],
)
def test_a_store_of_another_version_or_program_is_one_line(change: str, said: str, stored: Path) -> None:
    """Optuna, for one, keeps its version in a table of the same name."""
    with closing(sqlite3.connect("mlflow.db")) as store:
        store.executescript(change)
    with pytest.raises(ServiceUnavailable, match=said) as caught, service():
        client_of(f"sqlite:///{stored}/mlflow.db").search_experiments()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("answer", "variable", "kind", "said"),
    [
        (
            None,
            "",
            ServiceUnavailable,
            r"/api/2.0/.*: \[Errno 111\] Connection refused\); start.*, or correct tracking\.uri$",
        ),
        (None, "{address}", ServiceUnavailable, r"or correct the variable MLFLOW_TRACKING_URI$"),
        (
            (403, "no"),
            "",
            Refused,
            r"at MLflow's address: API request to endpoint .* failed with error code 403 .* 'no'",
        ),
        ((503, "later"), "", ServiceUnavailable, r"search: too many 503 error responses\); check"),
        ((200, "<html>"), "", ServiceUnavailable, r"at MLflow's address: .* not in a valid JSON format"),
    ],
)
def test_what_mlflow_s_client_says_is_handed_on(
    answer: Any, variable: str, kind: type[Exception], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that answers is not reported as away, and a wrong variable is not blamed on params.yaml."""
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(answer[0])
            self.send_header("Content-Length", str(len(answer[1])))
            self.end_headers()
            self.wfile.write(answer[1].encode())

        def log_message(self, *_: object) -> None: ...

    with running(Handler) as address:
        if answer:
            with pytest.raises(kind, match=said), service():
                client_of(address).search_experiments()
    if not answer:  # the server is gone
        monkeypatch.setenv("MLFLOW_TRACKING_URI", variable.format(address=address))
        with pytest.raises(kind, match=said), service():
            client_of(address).search_experiments()


def test_a_deleted_experiment_is_named_and_what_was_reported_waits(
    stored: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    client = MlflowClient()
    number = client.create_experiment("harr")
    client.delete_experiment(number)
    with tracked_run("train", Params.load()) as run:
        run.log(0, {"loss": 3.0})
    error = capsys.readouterr().err
    assert f"experiment 'harr' was deleted in MLflow; `mlflow experiments restore -x {number}` brings it back" in error
    assert "stage train is reported later" in error and len(list(NOTES.glob("*.json"))) == 1
    client.restore_experiment(number)
    assert send_reports() == ["reported to MLflow: stage train, FINISHED"]
    (only,) = stage_runs()
    assert only.data.metrics == {"loss": 3.0}


@pytest.mark.parametrize(("status", "kind"), [(403, Refused), (503, ServiceUnavailable)])
def test_errors_of_boto_are_told_apart_by_their_status(status: int, kind: type[Exception]) -> None:
    exceptions, boto3 = pytest.importorskip("botocore.exceptions"), pytest.importorskip("boto3.exceptions")
    response = {"Error": {"Code": "X", "Message": "no"}, "ResponseMetadata": {"HTTPStatusCode": status}}
    cause = exceptions.ClientError(response, "PutObject")
    with pytest.raises(kind, match=r"a\.txt: ClientError"), uploading("a.txt"):
        raise cause
    with pytest.raises(kind, match=r"a\.txt: S3UploadFailedError"), uploading("a.txt"):
        failed = boto3.S3UploadFailedError("failed")
        failed.__context__ = cause
        raise failed
    with pytest.raises(ServiceUnavailable), uploading("a.txt"):
        raise exceptions.NoCredentialsError
