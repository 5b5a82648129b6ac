"""A stop of a whole process group, as `timeout dvc repro`, systemd and a closed terminal send it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from servers import until

from flows.server import STATE
from harr.io.files import read_json

STAGE = """
import os, sys, time
from prefect import flow, task
from flows import server
from flows.runtime.command import main
from harr.io.progress import stoppable

@task
def note() -> None:
    pass

@flow(name="embed")
async def embed() -> None:
    for _ in stoppable(range(2)):
        note()
        print("begun", os.getpid(), flush=True)
        time.sleep(2)

server.START_SECONDS = 300.0
main(embed)
"""
STOPPED = "stopped; finished work is kept, run the same command again to go on"


def alive(pid: int) -> bool:
    return bool(psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)


@pytest.mark.soak
@pytest.mark.parametrize("server", ["stays", "is gone"])
def test_a_stop_of_the_group_of_dvc_ends_its_stage_in_a_line(workplace: Path, server: str) -> None:
    """DVC dies at once; its stage finishes a step, reports to the server that outlives it, and is gone."""
    (workplace / "stage.py").write_text(STAGE)
    (workplace / "dvc.yaml").write_text(f"stages: {{embed: {{cmd: {sys.executable} -u stage.py}}}}")
    environment = {**os.environ, "PYTHONPATH": str(workplace), "PREFECT_HOME": str(workplace / "prefect")}
    dvc = [sys.executable, "-m", "dvc"]
    subprocess.run([*dvc, "init", "--no-scm", "--quiet"], env=environment, check=True)
    with (workplace / "told.log").open("wb") as log:
        group = subprocess.Popen([*dvc, "repro"], env=environment, stdout=log, stderr=log, start_new_session=True)
    told = (workplace / "told.log").read_text
    assert until(lambda: "begun" in told() or group.poll() is not None, 400) and group.poll() is None, told()
    stage, supervisor = int(told().split("begun ")[1].split()[0]), read_json(STATE)["pid"]
    helpers = psutil.Process(supervisor).children(recursive=True)
    if server == "is gone":
        for process in (psutil.Process(supervisor), *helpers):
            process.kill()
    asked, before = time.monotonic(), len(told())
    os.killpg(group.pid, signal.SIGTERM)
    group.wait(timeout=30)
    assert until(lambda: not alive(stage), 40), told()
    took = time.monotonic() - asked
    assert "Traceback" not in told() and told().count(STOPPED) == 1, told()
    assert took < 15, told()  # 10 s and what a busy machine adds
    if server == "stays":
        assert "does not answer" not in told()[before:]  # a busy server may miss a call before
        assert until(lambda: not alive(supervisor) and not STATE.exists(), 40)
