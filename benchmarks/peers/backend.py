"""A backend of sentence-transformers (onnx, openvino) in its own process, for ``python -m benchmarks.peers``.

Its packages need other versions than harr, so this file is also a script for their Python, and does not import harr.
"""

import json
import os
import subprocess
import sys
import time
from typing import Any

OPTIONS: dict[str, dict[str, Any]] = {
    "onnx": {"provider": "CPUExecutionProvider"},
    "openvino": {"ov_config": {"INFERENCE_NUM_THREADS": "1"}},
}
"""Arguments to open each backend; OpenVINO uses bfloat16 if the processor has it."""


class Backend:
    """The backend ``name`` under the interpreter ``python``, with one thread."""

    def __init__(self, python: str, name: str, folder: str) -> None:
        self._process = subprocess.Popen(
            [python, __file__, name, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def encode(self, texts: list[str]) -> None:
        """Encode texts in that process, and wait for it."""
        assert self._process.stdin and self._process.stdout
        print(json.dumps(texts), file=self._process.stdin, flush=True)
        assert self._process.stdout.readline(), "the backend ended; its last lines say why"

    def close(self) -> None:
        """Let the process end."""
        self._process.communicate()


def with_children() -> float:
    """Return the CPU seconds of this process and of its running children."""
    import psutil

    return time.process_time() + sum(sum(one.cpu_times()[:2]) for one in psutil.Process().children(recursive=True))


def answer(name: Any, folder: str) -> None:
    """Encode the texts of every line of standard input."""
    heard, sys.stdout = sys.stdout, sys.stderr
    from sentence_transformers import SentenceTransformer

    options: dict[str, Any] = OPTIONS[name]
    if name == "onnx":
        from onnxruntime import SessionOptions

        session = SessionOptions()
        session.intra_op_num_threads = session.inter_op_num_threads = 1
        options |= {"session_options": session}
    model = SentenceTransformer(
        folder, device="cpu", backend=name, local_files_only=True, model_kwargs={"export": True, **options}
    )
    model.max_seq_length = 256
    for line in sys.stdin:
        model.encode(json.loads(line))
        print("done", file=heard, flush=True)


if __name__ == "__main__":
    os.environ |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    answer(*sys.argv[1:])
