"""How long `harr doctor` and `harr status` take, beside a bare Python: ``python -m benchmarks.doctor [FOLDER]``.

FOLDER is a project's folder, best one in which the pipeline has run; without it, this one. The least of seven runs
counts, since whatever else the machine does only adds to it. The processor time is what remains comparable on a
busy machine.
"""

import resource
import subprocess
import sys
import time
from pathlib import Path

RUNS = 7
COMMANDS = {
    "python -c pass": ["-c", "pass"],
    "harr doctor": ["-P", "-m", "flows.cli", "doctor"],
    "harr status": ["-P", "-m", "flows.cli", "status"],
}


def least_seconds(words: list[str], folder: Path) -> tuple[float, float]:
    """The shortest wall time of a command, and the shortest processor time."""
    spent, worked = [], []
    for _ in range(RUNS):
        began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *words], cwd=folder, stdout=subprocess.DEVNULL, check=False)
        spent.append(time.perf_counter() - began)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        worked.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(spent), min(worked)


def main() -> None:
    """Print a line per command: milliseconds, the ratio to a bare Python, and milliseconds of processor time."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    seconds = {name: least_seconds(words, folder) for name, words in COMMANDS.items()}
    for name, (took, worked) in seconds.items():
        ratio = took / seconds["python -c pass"][0]
        print(f"{name:<16} {1000 * took:5.0f} ms {ratio:6.1f} x   processor {1000 * worked:5.0f} ms")


if __name__ == "__main__":
    main()
