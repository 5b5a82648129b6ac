"""Kill the processes of a Prefect pipeline, and restart them: ``python -m benchmarks.worker_kills --kills 20``.

The tiny world of ``benchmarks.crash`` in a project made by `harr init`, with Prefect, workers and MLflow of `harr up`.
A deployed run of all stages is killed at a random moment: its flow, DVC, the stage, the worker, Prefect or MLflow
(SIGKILL); `harr up` restarts what is gone, and a second run continues. Its outputs must equal those of an undisturbed
run; Prefect, and MLflow after `harr record`, must have ended every run. A figure in which two undisturbed runs differ
is not compared, but named.
"""

import argparse
import json
import os
import random
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from benchmarks.crash import PARAMS
from benchmarks.made import ROOT
from harr.io.files import read_json
from harr.project.create import create_project
from tasks.tracking.execution import pid_of

VICTIMS = ("flow", "dvc", "stage", "worker cpu", "Prefect", "MLflow")
WORKED = ("data", "metrics", "work", "dvc.lock", ".dvc/cache", ".dvc/tmp")
ENDED = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")
MARKS = {"flow": "-m prefect.engine", "stage": "-m tasks.", "dvc": "-m dvc repro"}
DIGESTS = """
import json
from benchmarks.made import MADE, artifacts
print(json.dumps({name: digest for stage in MADE for name, digest in artifacts(stage).items()}))
"""
PATIENCE = 400.0
"""Seconds after which an unfinished run counts as hanging; a run without heartbeats has crashed after 95."""


@dataclass(frozen=True)
class Project:
    """A folder with its own servers."""

    folder: Path
    ports: tuple[int, ...]

    def harr(self, *words: str) -> None:
        """Run a command of harr.

        Raises:
            CalledProcessError: it failed.
        """
        own = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        own |= {"PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "DVC_NO_ANALYTICS": "true"}
        with (self.folder.parent / "log").open("ab") as log:
            command = [sys.executable, "-m", "flows.cli", *words]
            subprocess.run(command, cwd=self.folder, env=own, check=True, stdout=log, stderr=log)

    def up(self) -> None:
        """Start what is not running."""
        names = ("prefect", "mlflow", "serve")
        self.harr("up", *(f"--{name}-port={port}" for name, port in zip(names, self.ports, strict=True)))

    def ask(self, path: str, body: Any = None) -> Any:
        """Ask Prefect; ask again if the server is away or busy."""
        for left in range(60, -1, -1):
            try:
                data = None if body is None else json.dumps(body).encode()
                url = f"http://127.0.0.1:{self.ports[0]}/api/{path}"
                request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
                with urllib.request.urlopen(request, timeout=60) as answer:
                    return json.loads(answer.read())
            except OSError:
                if not left:
                    raise
                time.sleep(1)

    def start(self) -> str:
        """Request a run of all stages, and return its id."""
        deployment = self.ask("deployments/name/pipeline/on-demand")["id"]
        return str(self.ask(f"deployments/{deployment}/create_flow_run", {})["id"])

    def state(self, run: str) -> str:
        """Return the kind of a run's state."""
        return str(self.ask(f"flow_runs/{run}")["state_type"])

    def processes(self) -> dict[str, psutil.Process]:
        """Return the processes in the folder, by what they are."""
        started = read_json(self.folder / ".harr/up.json")
        names = {pid_of(note["process"]): name for name, note in started.items()}
        found = {}
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                words = " ".join(process.cmdline())
                if process.status() == psutil.STATUS_ZOMBIE or not Path(process.cwd()).is_relative_to(self.folder):
                    continue
                marked = next((name for name, mark in MARKS.items() if mark in words), words)
                found[names.get(process.pid, marked)] = process
        return found

    def made(self) -> dict[str, str]:
        """Return digests of all that the stages made, taken in a separate process."""
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            [sys.executable, "-c", DIGESTS], cwd=self.folder, env=environment, check=True, stdout=subprocess.PIPE
        )
        made: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
        return made

    def clear(self) -> None:
        """Remove what the stages made."""
        for name in WORKED:
            path = self.folder / name
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def free_ports(count: int) -> tuple[int, ...]:
    """Return free ports."""
    taken = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = tuple(one.getsockname()[1] for one in taken)
    for one in taken:
        one.close()
    return ports


def until(ready: Callable[[], object], what: str) -> None:
    """Wait for something.

    Raises:
        TimeoutError: it has not come within ``PATIENCE``.
    """
    end = time.monotonic() + PATIENCE
    while not ready():
        if time.monotonic() > end:
            raise TimeoutError(what)
        time.sleep(0.2)


def finish(project: Project) -> float:
    """Run all stages to their end, and return the seconds from the flow's start.

    Raises:
        AssertionError: the run has failed.
    """
    run = project.start()
    until(lambda: "flow" in project.processes() or project.state(run) in ENDED, "no flow")
    began = time.monotonic()
    until(lambda: project.state(run) in ENDED, "the run has not ended")
    assert project.state(run) == "COMPLETED", project.ask(f"flow_runs/{run}")["state"]
    return time.monotonic() - began


def strike(project: Project, victim: str, after: float) -> str:
    """Start a run, kill part of it, and wait until it has ended; return its state, or "" if it ended before."""
    run = project.start()
    until(lambda: "flow" in project.processes() or project.state(run) in ENDED, "no flow")
    time.sleep(after)
    until(lambda: victim in project.processes() or project.state(run) in ENDED, f"no {victim}")
    if project.state(run) in ENDED:
        return ""
    with suppress(KeyError, psutil.Error):
        project.processes()[victim].kill()
    if victim in ("worker cpu", "Prefect", "MLflow"):
        time.sleep(2)
        project.up()
    until(lambda: project.state(run) in ENDED, f"{run} has not ended after its {victim} was killed")
    began = time.monotonic()
    until(lambda: not {"dvc", "stage", "flow"} & set(project.processes()), f"after {victim}: a process is left")
    return f"{project.state(run)}, its processes gone {time.monotonic() - began:.0f} s later"


def open_runs(project: Project) -> int:
    """Return the number of runs that MLflow considers running, after `harr record`."""
    project.harr("record")
    with closing(sqlite3.connect(project.folder / "mlflow.db")) as store:
        return int(store.execute("SELECT count(*) FROM runs WHERE status = 'RUNNING'").fetchone()[0])


def main() -> int:
    """Print a line per kill; exit with 1 if anything differed."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("--kills", 20), ("--seed", 0)):
        parser.add_argument(name, type=int, default=default)
    options = parser.parse_args()
    draw, wrong = random.Random(options.seed), Counter[str]()
    with tempfile.TemporaryDirectory(prefix="worker-kills-") as folder:
        project = Project(Path(folder).resolve() / "project", free_ports(3))
        create_project(project.folder)
        (project.folder / "params.yaml").write_text(PARAMS)
        try:
            project.up()
            seconds, calm = finish(project), project.made()
            project.clear()
            seconds = min(seconds, finish(project))
            again = project.made()
            apart = {name for name in calm.keys() | again.keys() if calm.get(name) != again.get(name)}
            print(
                f"undisturbed: {seconds:.0f} s, {len(calm)} artifacts; apart in two runs: {sorted(apart)}", flush=True
            )
            place = 0
            while place < options.kills:
                project.clear()
                victim, after = VICTIMS[place % len(VICTIMS)], draw.uniform(0, 0.9 * seconds)
                if not (state := strike(project, victim, after)):
                    continue
                place += 1
                finish(project)
                made = project.made()
                differs = sorted(
                    name for name in (calm.keys() | made.keys()) - apart if calm.get(name) != made.get(name)
                )
                left = open_runs(project)
                wrong[victim] += bool(differs or left)
                print(f"{place} {victim} after {after:.0f} s: {state}; differs: {differs}; {left} open", flush=True)
        except (AssertionError, TimeoutError, subprocess.CalledProcessError) as error:
            wrong["stopped"] += 1
            print(f"WRONG {error}\n{(project.folder.parent / 'log').read_text()[-3000:]}")
        finally:
            project.harr("down")
    print(f"{options.kills} kills, {wrong.total()} with a difference")
    return int(wrong.total() > 0)


if __name__ == "__main__":
    sys.exit(main())
