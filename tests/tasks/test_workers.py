"""Shards made by a Prefect task runner: the bytes of a run without one, also where a node dies."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from digests import digests
from stages import SMOKE

from flows.server import free_port, healthy, prefect_server
from harr.builders.embed import embed_as_worker
from harr.corpus.passages import Passages, write_passages
from harr.embed.encoder import Encoder
from harr.embed.shards import embed_corpus
from harr.errors import IndexMismatch
from harr.io.files import finish, read_json, write_json
from harr.params import Params
from harr.params.embed import EmbedParams
from harr.types import Passage
from tasks.paths import CORPUS, VECTORS, WORK

COUNT, SHARD = 90, 10
EMBED = {"dtype": "float32", "shard_size": SHARD, "batch_size": 5}
FLOW = """
from prefect import flow
from harr.params import Params
from tasks.embed import embed_passages

def embed(runner):
    params = Params.load()
    params = Params.model_validate({**params.model_dump(exclude_unset=True), "runner": runner})
    flow(name="spread")(lambda: print(embed_passages(params)))()
"""
THREADS = FLOW + "embed({'kind': 'threads', 'workers': 2})"
TWO_NODES = (
    FLOW
    + """
import threading, time
from pathlib import Path
import psutil
from ray.cluster_utils import Cluster

cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
second = cluster.add_node(num_cpus=1)
raylet = next(p.process.pid for kind, ps in second.all_processes.items() if kind == "raylet" for p in ps)

def busy():
    workers = psutil.Process(raylet).children(recursive=True)
    return any("embed_shard" in " ".join(worker.cmdline()) for worker in workers)

def kill_when_busy():
    while len(list(Path("work/embed").glob("*/vectors-*.npy"))) < 2 or not busy():
        time.sleep(0.01)
    psutil.Process(raylet).kill()
    cluster.remove_node(second, allow_graceful=False)
    print("killed", flush=True)

threading.Thread(target=kill_when_busy, daemon=True).start()
embed({"kind": "ray", "address": cluster.address, "workers": 3, "cpus": 1})
cluster.shutdown()
"""
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    port = free_port()
    url, deadline = f"http://127.0.0.1:{port}/api", time.monotonic() + 120
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PREFECT_HOME", str(tmp_path_factory.mktemp("prefect")))
        with prefect_server(port):
            while not healthy(url):
                assert time.monotonic() < deadline
                time.sleep(0.2)
            yield url


@pytest.fixture
def expected(workplace: Path, tiny: str) -> dict[str, str]:
    """A corpus of 9 shards in the current folder, and what is made of it without any runner."""
    write_passages([Passage(f"p{i}", f"Town {i} has a river. " + "snow " * (i % 30)) for i in range(COUNT)], CORPUS)
    write_json(Path("params.yaml"), SMOKE | {"embed": EMBED, "encoder": {"model": tiny, "max_tokens": 64}})
    encoder = Encoder(tiny, max_tokens=64)
    embed_corpus(Passages.open(CORPUS), encoder, EmbedParams(**EMBED), Path("local"), Path("work/local"))
    return digests(Path("local"))


def run(script: str, server: str) -> str:
    environment = {**os.environ, "PREFECT_API_URL": server, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.getcwd()}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=250, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.fault(22)
@pytest.mark.services
def test_threads_make_the_bytes_of_the_local_run(expected: dict[str, str], server: str) -> None:
    run(THREADS, server)
    assert digests(VECTORS) == expected
    finish(WORK / "embed")
    assert not list((WORK / "embed").iterdir())


@pytest.mark.services
@pytest.mark.skipif(find_spec("prefect_ray") is None, reason="the extra ray is not installed")
def test_ray_completes_every_row_once_when_a_node_is_killed(expected: dict[str, str], server: str) -> None:
    said = run(TWO_NODES, server)
    assert "killed" in said and f"'embedded': {COUNT}" in said
    assert digests(VECTORS) == expected
    rows = [shard["rows"] for shard in read_json(VECTORS / "manifest.json")["shards"]]
    assert rows == [SHARD] * (COUNT // SHARD)


def test_a_worker_with_another_model_or_corpus_is_refused(expected: dict[str, str], tmp_path: Path) -> None:
    manifest, told = read_json(Path("local/manifest.json")), Params.load()
    write_json(tmp_path / "shards/manifest.json", manifest | {"encoder": "another"})
    with pytest.raises(IndexMismatch, match=r"has encoder .* is of another and"):
        embed_as_worker(told.encoder, told.embed, CORPUS, VECTORS, tmp_path / "shards", 0)
