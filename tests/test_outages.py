"""MLflow and Prefect go away in the middle of a stage, for HARR_OUTAGE_SECONDS (3): it completes with the same result.

And it says what happened. Milvus goes away in tests/harr/index/test_milvus_server.py.
"""

import json
import os
import shutil
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from digests import digests
from mlflow import MlflowClient
from servers import Server, server_of, until

from flows.server import healthy, mlflow_command, prefect_command
from harr.params import Params
from tasks.download import download_corpus
from tasks.embed import embed_passages

pytestmark = [pytest.mark.services, pytest.mark.timeout(1200)]
SECONDS = float(os.environ.get("HARR_OUTAGE_SECONDS", "3"))


def change(**sections: dict[str, Any]) -> None:
    """Edit params.yaml."""
    params = yaml.safe_load(Path("params.yaml").read_text())
    changed = {name: {**params.get(name, {}), **values} for name, values in sections.items()}
    Path("params.yaml").write_text(yaml.safe_dump({**params, **changed}))


def without(missed: dict[str, Server], process: "subprocess.Popen[str]", begun: Callable[[], Any]) -> str:
    """Kill the servers when ``begun``; start each again after SECONDS, once the stage says so; what it printed."""
    told: list[str] = []
    reader = threading.Thread(target=lambda: told.extend(process.stdout or ()))
    reader.start()
    assert until(lambda: begun() or process.poll() is not None, pause=0.005), "".join(told)
    for server in missed.values():
        server.stop()
    time.sleep(SECONDS)
    away = dict(missed)
    while away:
        said = until(lambda: [words for words in away if any(words in line for line in told)])
        assert said, (away.keys(), "".join(told))
        for words in said:
            away.pop(words).start()
    reader.join(timeout=1000)
    process.communicate(timeout=60)  # closes what it printed to
    assert process.returncode == 0, "".join(told)
    return "".join(told)


def test_mlflow_and_prefect(stored: Path, tiny: str) -> None:
    change(encoder={"model": tiny}, embed={"shard_size": 5})
    change(download={"passages": 200, "train_questions": 8, "test_questions": 8})
    download_corpus.fn(Params.load())
    embed_passages.fn(Params.load())  # where nothing goes away
    calm = digests(Path("data/vectors"))
    shutil.rmtree("data/vectors")
    shutil.rmtree("work")
    mlflow, prefect = (server_of(stored, make) for make in (mlflow_command, prefect_command))
    uri, url = f"http://127.0.0.1:{mlflow.port}", f"http://127.0.0.1:{prefect.port}/api"
    own = {"MLFLOW_TRACKING_URI": uri, "PREFECT_API_URL": url, "HARR_EXECUTION": "one"}
    try:
        mlflow.start()
        prefect.start()
        assert until(lambda: healthy(url))
        limit = [sys.executable, "-m", "prefect", "concurrency-limit", "create", "gpu", "1"]
        subprocess.run(limit, env={**os.environ, "PREFECT_API_URL": url}, check=True, capture_output=True)
        missed = {"MLflow server does not answer": mlflow, "the Prefect server at": prefect}
        shards, pipe = Path("work/embed"), subprocess.PIPE
        command = [sys.executable, "-m", "flows.embed"]
        embed = subprocess.Popen(command, env={**os.environ, **own}, stdout=pipe, stderr=subprocess.STDOUT, text=True)
        told = without(missed, embed, lambda: len(list(shards.glob("*/vectors-*.npy"))) > 2)
        assert digests(Path("data/vectors")) == calm
        assert "stage embed goes on, and is reported later" in told
        assert "the Prefect server answers again, after" in told and "Traceback" not in told
        assert [one["state_name"] for one in ask(f"{url}/flow_runs/filter")] == ["Completed"]
        assert until(lambda: {one["state_name"] for one in ask(f"{url}/task_runs/filter")} == {"Completed"})
        # The place under the limit is free again: a later task would wait for it for ever.
        assert until(lambda: [one["active_slots"] for one in ask(f"{url}/v2/concurrency_limits/filter")] == [0])
        command = [sys.executable, "-m", "flows.cli", "report", "--send"]
        told += subprocess.run(command, env={**os.environ, **own}, check=True, capture_output=True, text=True).stdout
        assert "MLflow answers again" in told or "reported to MLflow: stage embed" in told
        runs = {one.data.tags.get("harr.stage"): one for one in MlflowClient(uri).search_runs(["1"])}
        assert runs["embed"].info.status == "FINISHED" and runs["embed"].data.metrics["embed.embedded"] == 200
    finally:
        mlflow.stop()
        prefect.stop()


def ask(url: str) -> Any:
    """What Prefect says to an empty filter."""
    request = urllib.request.Request(url, b"{}", {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)
