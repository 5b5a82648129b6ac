"""A real ``vllm serve`` on the CPU, from its own environment (``make vllm``), for tests with the mark vllm."""

import os
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from servers import free_port, until

ENVIRONMENT = Path(os.environ.get("VLLM_ENV", "work/vllm"))
START = 420
"""Seconds that a start may take; it takes 25 on an idle machine."""
FLAGS = (
    *("--host", "127.0.0.1", "--served-model-name", "tiny", "--dtype", "float32", "--enforce-eager"),
    # A seeded request whose prefill is chunked kills vLLM 0.32 on a CPU: "CPU Generator does not use offset".
    *("--no-enable-chunked-prefill", "--max-num-batched-tokens", "8192"),
)
SET = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
}


def environment() -> Path:
    """Return the environment, or skip the test."""
    if not (ENVIRONMENT / "bin/vllm").exists():
        pytest.skip(f"no vLLM in {ENVIRONMENT}; `make vllm` installs it")
    return ENVIRONMENT.absolute()


class Vllm:
    """A server on one port, which can be killed and restarted."""

    def __init__(self, model: str, log: Path, *flags: str) -> None:
        self.port, self.log = free_port(), log
        self.url = f"http://127.0.0.1:{self.port}"
        self.command = [str(environment() / "bin/vllm"), "serve", model, "--port", str(self.port), *FLAGS, *flags]
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, wait: bool = True) -> None:
        """Start it, and wait until it is healthy."""
        path = f"{environment()}/bin:{os.environ['PATH']}"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command, stdout=log, stderr=log, env={**os.environ, **SET, "PATH": path}, start_new_session=True
            )
        if wait:
            until(lambda: self.healthy() or (self.process and self.process.poll() is not None), START, 0.5)
            assert self.healthy(), self.log.read_text()[-3000:]

    def healthy(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def kill(self) -> None:
        """Kill it and its children at once, as kill -9 does."""
        if self.process:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None


@contextmanager
def vllm(model: str, log: Path, *flags: str) -> Iterator[Vllm]:
    """Run a server and yield it once it is healthy."""
    server = Vllm(model, log, *flags)
    try:
        server.start()
        yield server
    finally:
        server.kill()
