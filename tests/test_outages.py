"""MLflow or Prefect goes away in the middle of a stage, which completes with the same result and a message.

For Milvus see tests/harr/index/test_milvus_server.py.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from digests import digests
from encyclopaedia import encyclopaedia
from harr_local.servers import healthy, mlflow_command, prefect_command
from mlflow import MlflowClient
from servers import server_of, until

from harr.params import Params
from tasks.download import download_corpus
from tasks.embed import embed_passages

pytestmark = [pytest.mark.services, pytest.mark.timeout(1200)]


def change(**sections: dict[str, Any]) -> None:
    params = yaml.safe_load(Path("params.yaml").read_text())
    changed = {name: {**params.get(name, {}), **values} for name, values in sections.items()}
    Path("params.yaml").write_text(yaml.safe_dump({**params, **changed}))


def test_mlflow(stored: Path, tiny: str) -> None:
    change(encoder={"model": tiny}, embed={"shard_size": 5})
    change(download=encyclopaedia(passages=200, train_questions=8, test_questions=8))
    download_corpus(Params.load())
    embed_passages(Params.load())  # without an outage
    calm = digests(Path("data/vectors"))
    shutil.rmtree("data/vectors")
    shutil.rmtree("work")
    mlflow = server_of(stored, mlflow_command)
    uri = f"http://127.0.0.1:{mlflow.port}"
    own = {"MLFLOW_TRACKING_URI": uri, "HARR_EXECUTION": "one"}
    try:
        mlflow.start()
        shards, pipe = Path("work/embed"), subprocess.PIPE
        command = [sys.executable, "-m", "tasks.embed"]
        embed = subprocess.Popen(command, env={**os.environ, **own}, stdout=pipe, stderr=subprocess.STDOUT, text=True)
        assert until(lambda: len(list(shards.glob("*/vectors-*.npy"))) > 2 or embed.poll() is not None, pause=0.005)
        mlflow.stop()
        output, _ = embed.communicate(timeout=300)
        assert embed.returncode == 0 and digests(Path("data/vectors")) == calm
        assert "stage embed is reported later: `harr record`" in output and "Traceback" not in output
        mlflow.start()
        command = [sys.executable, "-m", "flows.cli", "record"]
        output += subprocess.run(command, env={**os.environ, **own}, check=True, capture_output=True, text=True).stdout
        assert "reported to MLflow: stage embed" in output
        runs = {one.data.tags.get("harr.stage"): one for one in MlflowClient(uri).search_runs(["1"])}
        assert runs["embed"].info.status == "FINISHED" and runs["embed"].data.metrics["embed/embedded"] == 200
    finally:
        mlflow.stop()


@pytest.mark.fault(26)
def test_a_stage_is_brought_to_its_end_where_the_prefect_of_its_flow_goes_away(workplace: Path) -> None:
    subprocess.run([sys.executable, "-m", "dvc", "init", "--no-scm", "--quiet"], check=True)
    nap = "touch begun && sleep 5 && touch made"
    Path("dvc.yaml").write_text(yaml.safe_dump({"stages": {"nap": {"cmd": nap, "outs": ["made"]}}}))
    prefect = server_of(workplace, prefect_command)
    url = f"http://127.0.0.1:{prefect.port}/api"
    try:
        prefect.start()
        assert until(lambda: healthy(url))
        command = [sys.executable, "-c", "from flows.pipeline import pipeline; pipeline()"]
        flow = subprocess.Popen(command, env={**os.environ, "PREFECT_API_URL": url, "PREFECT_CLIENT_MAX_RETRIES": "0"})
        assert until(lambda: Path("begun").exists() or flow.poll() is not None)
    finally:
        prefect.stop()
    flow.wait(timeout=300)
    assert Path("made").exists() and "nap" in yaml.safe_load(Path("dvc.lock").read_text())["stages"]
