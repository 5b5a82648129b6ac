"""Stages on agents that share no folder with the pipeline: two homes, a bare git repository, a DVC remote, servers."""

import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from harr_local.servers import healthy, mlflow_command, prefect_command
from servers import Server, ask, server_of, until

from flows.agents import _dvc, run_on_agent
from flows.commits import repository
from harr.errors import HarrError, ParamsError
from harr.project.create import create_project

pytestmark = [pytest.mark.services, pytest.mark.timeout(1500)]
ROOT = Path(__file__).parents[2]
SLEEP = """
import sys, time
from pathlib import Path
import yaml

Path("work/nap").mkdir(parents=True, exist_ok=True)
notes, seed = Path(sys.argv[1]), yaml.safe_load(Path("params.yaml").read_text())["seed"]
(notes / f"began-{seed}").write_text(str(Path.cwd()))
while not (notes / "wake").exists():
    time.sleep(.2)
Path("nap.txt").write_text(f"seed {seed}")
"""
STAGES = """
stages:
  inputs:
    cmd: mkdir -p data/inputs && cat params.yaml > data/inputs/nap.json
    always_changed: true
    outs: [data/inputs/nap.json: {{persist: true}}]
  nap:
    cmd: {python} nap.py {notes}
    deps: [data/inputs/nap.json]
    outs: [nap.txt]
"""
IDENTITY = ["-c", "user.name=a", "-c", "user.email=a@localhost"]
TIMED = {"metrics/embed.json", "metrics/index.json", "metrics/train.json", "metrics/training_stats.jsonl"}
"""Outputs that contain timings, as do plots/train.csv and the report."""


@dataclass
class Site:
    """A project, its servers, and machines (folders, each with a home) whose workers serve its pools."""

    folder: Path
    environment: dict[str, str]
    servers: list[Server]
    workers: "dict[str, subprocess.Popen[bytes]]" = field(default_factory=dict)

    @property
    def project(self) -> Path:
        return self.folder / "project"

    def run(self, *words: str) -> str:
        """Return the output of a command in the project's folder; it must succeed."""
        done = subprocess.run(
            words, cwd=self.project, env=self.environment, capture_output=True, text=True, timeout=600, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def start_worker(self, machine: str, pool: str) -> None:
        """Start a worker as on another machine: with its own folder and home."""
        home = self.folder / machine
        home.mkdir(exist_ok=True)
        own = {"HOME": str(home), "PREFECT_HOME": str(home / ".prefect"), "TMPDIR": str(home)}
        own |= {"PREFECT_WORKER_QUERY_SECONDS": "1", "PREFECT_WORKER_ENABLE_CANCELLATION": "true"}
        command = [sys.executable, "-m", "prefect", "worker", "start", "--pool", pool]
        with (home / "worker.log").open("ab") as log:
            self.workers[machine] = subprocess.Popen(
                command, cwd=home, env=self.environment | own, stdout=log, stderr=log, start_new_session=True
            )

    def kill_worker(self, machine: str) -> None:
        """Kill a worker and everything it runs, as a power cut would."""
        family = [psutil.Process(self.workers[machine].pid)]
        family += family[0].children(recursive=True)
        for process in family:
            process.kill()
        psutil.wait_procs(family, timeout=20)
        self.workers[machine].wait()

    def ask(self, path: str, body: Any = None) -> Any:
        return ask(f"{self.environment['PREFECT_API_URL']}/{path}", body)

    def start(self, deployment: str, **parameters: Any) -> str:
        """Start a deployment's run and return its id."""
        found = self.ask(f"deployments/name/{deployment}")["id"]
        return str(self.ask(f"deployments/{found}/create_flow_run", {"parameters": parameters})["id"])

    def state(self, run: str) -> str:
        return str(self.ask(f"flow_runs/{run}")["state_name"])

    def ended(self, run: str, seconds: float = 600) -> str:
        """Wait for a run to end; return its last state and message."""
        until(lambda: self.ask(f"flow_runs/{run}")["state"]["type"] in ENDS, seconds, 1)
        state = self.ask(f"flow_runs/{run}")["state"]
        return f"{state['name']}: {state['message']}"

    def on_agents(self) -> list[dict[str, Any]]:
        """Return the runs on agents, latest first."""
        return list(self.ask("flow_runs/filter", {"flows": {"name": {"any_": ["agent"]}}, "sort": "START_TIME_DESC"}))

    def stop(self) -> None:
        for machine, worker in self.workers.items():
            if worker.poll() is None:
                self.kill_worker(machine)
        for server in self.servers:
            server.stop()


ENDS = ("COMPLETED", "FAILED", "CANCELLED", "CRASHED")


def site_at(folder: Path, database: str = "") -> Site:
    """Make a project and its servers, not yet started; Prefect uses SQLite unless a database is named."""
    own = {"PREFECT_API_DATABASE_CONNECTION_URL": database} if database else {}
    gone = ("PREFECT", "HARR", "MLFLOW", "PYTEST")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(gone)}
    for name in ("prefect", "mlflow"):
        (folder / name).mkdir()
    servers = [
        server_of(folder / "prefect", prefect_command, PREFECT_HOME=str(folder / "prefect"), **own),
        server_of(folder / "mlflow", mlflow_command),
    ]
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    addresses = {
        "PREFECT_API_URL": f"http://127.0.0.1:{servers[0].port}/api",
        "MLFLOW_TRACKING_URI": f"http://127.0.0.1:{servers[1].port}",
        "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30",
        "OMP_NUM_THREADS": "1",
        "PATH": path,
    }
    site = Site(folder, kept | addresses, servers)
    create_project(site.project)
    shutil.copy(ROOT / "recipes/smoke.yaml", site.project / "params.yaml")
    return site


def deploy(site: Site, remote: str, **settings: str) -> None:
    """Start the servers and follow docs/agents.md."""
    for server in site.servers:
        server.start()
    assert until(lambda: healthy(site.environment["PREFECT_API_URL"]))
    subprocess.run(["git", "init", "--quiet", "--bare", str(site.folder / "code.git")], check=True)
    site.run("git", "init", "--quiet")
    (site.project / ".dvc/config.local").unlink(missing_ok=True)
    site.run("dvc", "remote", "add", "--quiet", "--default", "store", remote)
    for name, value in settings.items():
        site.run("dvc", "remote", "modify", "--quiet", "store", name, value)
    site.run("git", "add", "--all")
    site.run("git", *IDENTITY, "commit", "--quiet", "-m", "start")
    site.run("git", "remote", "add", "origin", str(site.folder / "code.git"))
    site.run(sys.executable, "-m", "harr_local.deployments")
    site.run("prefect", "work-pool", "set-concurrency-limit", "gpu", "2")


@pytest.fixture(scope="module")
def napping(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A project with a stage that sleeps until its notes contain `wake`."""
    folder = tmp_path_factory.mktemp("napping")
    (folder / "notes").mkdir()
    site = site_at(folder)
    (site.project / "dvc.yaml").write_text(STAGES.format(python=sys.executable, notes=folder / "notes"))
    (site.project / "nap.py").write_text(SLEEP)
    for seed in (5, 6):
        text = (ROOT / "recipes/smoke.yaml").read_text().replace("seed: 0", f"seed: {seed}")
        (site.project / f"recipes/seed{seed}.yaml").write_text(text)
    deployments = yaml.safe_load((site.project / "prefect.yaml").read_text())
    some = [one for one in deployments["deployments"] if one["name"] in ("cpu", "gpu", "on-demand")]
    for one in some:
        one.pop("concurrency_limit", None)
    (site.project / "prefect.yaml").write_text(yaml.safe_dump({"deployments": some}))
    try:
        deploy(site, str(folder / "remote"))
        site.start_worker("here", "cpu")
        site.start_worker("there", "gpu")
        yield site
    finally:
        site.stop()


@pytest.fixture
def notes(napping: Site) -> Path:
    """The folder in which the sleeping stages write notes, without `wake`."""
    shutil.rmtree(napping.folder / "notes")
    (napping.folder / "notes").mkdir()
    return napping.folder / "notes"


def test_a_pipeline_that_is_cancelled_cancels_its_agent(napping: Site, notes: Path) -> None:
    run = napping.start("pipeline/on-demand", agents={"nap": "gpu"})
    assert until((notes / "began-0").exists), napping.ended(run)
    place = (notes / "began-0").read_text()
    assert place.startswith(str(napping.folder / "there")), "in a folder of the other machine"
    napping.ask(f"flow_runs/{run}/set_state", {"state": {"type": "CANCELLING"}})
    assert until(lambda: napping.state(run) == "Cancelled")
    assert until(lambda: napping.on_agents()[0]["state_type"] == "CANCELLED")
    assert until(lambda: not Path(place).exists()), "the stage has ended, and its checkout is gone"


def test_two_recipes_run_on_one_agent_at_once(napping: Site, notes: Path) -> None:
    runs = [napping.start("pipeline/on-demand", recipe=f"seed{seed}", agents={"nap": "gpu"}) for seed in (5, 6)]
    assert until(lambda: len(list(notes.glob("began-*"))) == 2), [napping.state(run) for run in runs]
    (notes / "wake").touch()
    assert [napping.ended(run).partition(":")[0] for run in runs] == ["Completed", "Completed"]
    for seed in (5, 6):
        assert (napping.project / f".harr/runs/seed{seed}/nap.txt").read_text() == f"seed {seed}"
    assert not napping.run("git", "ls-remote", "origin", "refs/harr/*"), "the commits were taken away"


def test_a_remote_that_is_away_is_one_clear_line(napping: Site, notes: Path) -> None:
    (notes / "wake").touch()
    remote, away = napping.folder / "remote", napping.folder / "elsewhere"
    text = (napping.project / "params.yaml").read_text()
    remote.rename(away)
    remote.write_text("no folder")
    try:
        (napping.project / "params.yaml").write_text(text.replace("seed: 0", "seed: 7"))
        message = napping.ended(napping.start("pipeline/on-demand", agents={"nap": "gpu"}))
    finally:
        remote.unlink()
        away.rename(remote)
    assert message.startswith("Failed: ") and "dvc push: " in message and "Traceback" not in message
    done = napping.ended(napping.start("pipeline/on-demand", agents={"nap": "gpu"}))
    assert done.startswith("Completed"), done
    assert (napping.project / "nap.txt").read_text() == "seed 7", "the changed params.yaml was sent, uncommitted"


def test_a_remote_that_is_full_is_one_line_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit on file sizes stands in for a full disk."""
    monkeypatch.chdir(tmp_path)
    for command in ("init --no-scm -q", "remote add -q -d remote there"):
        subprocess.run([sys.executable, "-m", "dvc", *command.split()], check=True)
    for name in ("a", "b"):
        Path("data").mkdir(exist_ok=True)
        Path("data", name).write_bytes(os.urandom(4_000_000))
    subprocess.run([sys.executable, "-m", "dvc", "add", "-q", "data"], check=True)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3_000_000, limits[1]))
    try:
        with pytest.raises(HarrError) as caught:
            _dvc(Path(), "push")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert str(caught.value).startswith(
        "dvc push: failed to push data to the cloud - 3 files failed to upload; failed to"
    )
    assert "File too large" in str(caught.value) and "\n" not in str(caught.value)


def test_what_an_agent_cannot_do_without_is_one_line(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "")
    with pytest.raises(ParamsError, match=r"an agent takes the code from git: .*; git remote add origin URL"):
        run_on_agent("train", Path(), "gpu", "one")
    address = "git remote add origin https://me:secret@localhost/code.git"
    subprocess.run(address.split(), check=True)
    assert repository() == "https://localhost/code.git", "Prefect keeps no password"
    with pytest.raises(ParamsError, match="name it, or set the variable MLFLOW_TRACKING_URI"):
        run_on_agent("train", Path(), "gpu", "one")
    Path("inner").mkdir()
    monkeypatch.chdir("inner")
    with pytest.raises(ParamsError, match="at the top of its repository, but it is in inner/"):
        repository()


def test_all_stages_on_two_machines_are_those_of_one_folder(
    tmp_path: Path, postgresql: str, bucket: tuple[str, dict[str, str]]
) -> None:
    """Run recipe smoke over PostgreSQL and S3; the first agent is killed while training, and a second one finishes."""
    address, variables = bucket
    site = site_at(tmp_path, postgresql.replace("psycopg2", "asyncpg"))
    site.environment |= variables
    alone = tmp_path / "alone"
    try:
        settings = site.project / "params.yaml"
        settings.write_text(settings.read_text().replace("  steps: 3\n", "  steps: 12\n  checkpoints: {every: 1}\n"))
        deploy(site, f"{address}/harr", endpointurl=variables["MLFLOW_S3_ENDPOINT_URL"])
        shutil.copytree(site.project, alone)
        site.start_worker("here", "cpu")
        site.start_worker("first", "gpu")
        run = site.start("pipeline/agents")
        assert until(lambda: kept_checkpoints(variables), 900, 0.2), site.ended(run)
        site.kill_worker("first")
        crash(site, site.on_agents()[0]["id"])
        site.start_worker("second", "gpu")
        one_folder = {**site.environment, "MLFLOW_TRACKING_URI": f"sqlite:///{alone}/mlflow.db"}
        subprocess.run([sys.executable, "-m", "flows.cli", "run"], cwd=alone, env=one_folder, check=True)
        assert site.ended(run).startswith("Completed")
        assert "unfinished work of another agent" in (tmp_path / "second/worker.log").read_text()
        ours, theirs = (hashes(place) for place in (site.project, alone))
        assert {path for path in ours if ours[path] != theirs[path]} <= {*TIMED, "plots/train.csv", "reports"}
        assert len(ours) == len(theirs) > 40
        assert json.loads(site.run("dvc", "status", "--json")) == {"inputs": ["always changed"]}
    finally:
        site.stop()


def kept_checkpoints(variables: dict[str, str]) -> bool:
    """Return whether the remote holds a checkpoint of stage train."""
    import boto3

    keys = {"aws_access_key_id": "stand-in", "aws_secret_access_key": "stand-in", "region_name": "us-east-1"}
    client = boto3.client("s3", endpoint_url=variables["MLFLOW_S3_ENDPOINT_URL"], **keys)
    listed = client.list_objects_v2(Bucket="models", Prefix="harr/unfinished").get("Contents", ())
    return any("checkpoint-" in item["Key"] and item["Key"].endswith("state.json") for item in listed)


def crash(site: Site, run: str) -> None:
    """Do what Prefect's automation does when a run's heartbeats stop (plugins/local/tests/test_up.py)."""
    site.ask(f"flow_runs/{run}/set_state", {"state": {"type": "CRASHED", "message": "gone"}, "force": True})


def hashes(place: Path) -> dict[str, str]:
    """Return the hashes of all outputs by path."""
    stages = yaml.safe_load((place / "dvc.lock").read_text())["stages"].values()
    return {out["path"]: out["md5"] for stage in stages for out in stage["outs"]}
