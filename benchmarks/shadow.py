"""What a shadow candidate costs the users: ``python -m benchmarks.shadow [--rounds N]``.

Two servers over one world of 2,000 passages (benchmarks/serve.py), both with a log, one with another version in its
shadow, are asked in turn: by one client that asks every 50 ms, and by six that ask again at once.
"""

import argparse
import http.client
import json
import os
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.serve import CHAMPION, NAME, ask, computed, health, make, server

EVERY_SECONDS = 0.05
RECORDER = "harr_traffic.recorder:Recorder"
SHADOW = f"harr_traffic.shadow:Shadow=models:/{NAME}/2"


def paced(port: int, bodies: list[bytes]) -> list[float]:
    """Ask one after the other, at most every 50 ms; return the milliseconds of each answer."""
    connection, times = http.client.HTTPConnection("127.0.0.1", port), []
    for body in bodies:
        begun = time.perf_counter()
        connection.request("POST", "/search", body)
        assert b'"id"' in connection.getresponse().read()
        times.append(1000 * (time.perf_counter() - begun))
        time.sleep(max(0.0, EVERY_SECONDS - (time.perf_counter() - begun)))
    return times


def compare(rounds: int, count: int) -> None:
    """Ask both servers in turn, and print what each took."""
    from harr.corpus.passages import read_questions
    from tasks.paths import QUESTIONS

    asked = [one.text for one in read_questions(QUESTIONS / "test.jsonl")]
    words = ["-m", "flows.cli", "serve", "--port", "0", "--model", CHAMPION, "--dtype", "float32", "--observer"]
    with (
        server(*words, f"{RECORDER}=alone") as (alone, port, _),
        server(*words, f"{RECORDER}=both", "--observer", SHADOW) as (shadowed, other, _),
    ):
        slow: dict[int, list[float]] = {port: [], other: []}
        fast: dict[int, list[float]] = {port: [], other: []}
        cores = dict.fromkeys((port, other), 0.0)
        for number in range(rounds + 1):
            bodies = [json.dumps({"question": asked[(number * count + n) % len(asked)]}).encode() for n in range(count)]
            for process, one in ((alone, port), (shadowed, other)):
                used = computed(process.pid)
                times, figures = paced(one, bodies), ask(one, bodies, 6)
                time.sleep(2.0)  # lets waiting searches be ranked
                if number:  # the first round warms up
                    slow[one] += times
                    fast[one].append(figures["p50"])
                    cores[one] += computed(process.pid) - used
        for name, one in (("alone", port), ("with a shadow", other)):
            p50, p99 = np.percentile(slow[one], [50, 99])
            each = 1000 * cores[one] / (2 * rounds * count)
            print(
                f"{name:<14} one client p50 {p50:.1f} ms, p99 {p99:.1f} ms; six clients p50 "
                f"{np.mean(fast[one]):.1f} ms; cores {each:.1f} ms a search"
            )
        print(
            f"ratios: one client p50 {np.median(slow[other]) / np.median(slow[port]):.2f}, six clients p50 "
            f"{np.mean(fast[other]) / np.mean(fast[port]):.2f}, cores {cores[other] / cores[port]:.2f}; n {rounds} "
            f"rounds of {count} searches each; shadow: {health(other)['observers'][SHADOW]}"
        )


def main() -> None:
    """Make the world and measure."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.shadow", description=main.__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--count", type=int, default=200, help="searches of a round, to each server")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="harr-shadow-"))
    try:
        make(folder, None)
        compare(options.rounds, options.count)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    main()
