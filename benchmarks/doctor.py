"""How long `harr doctor` and `harr status` take, beside a bare Python: ``python -m benchmarks.doctor [FOLDER]``.

FOLDER is a project's folder, best one in which the pipeline has run; without it, this one. The least of seven runs
counts, since whatever else the machine does only adds to it.
"""

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


def least_seconds(words: list[str], folder: Path) -> float:
    """The shortest wall time of a command."""
    spent = []
    for _ in range(RUNS):
        began = time.perf_counter()
        subprocess.run([sys.executable, *words], cwd=folder, stdout=subprocess.DEVNULL, check=False)
        spent.append(time.perf_counter() - began)
    return min(spent)


def main() -> None:
    """Print a line per command: milliseconds, and the ratio to a bare Python."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    seconds = {name: least_seconds(words, folder) for name, words in COMMANDS.items()}
    for name, took in seconds.items():
        print(f"{name:<16} {1000 * took:5.0f} ms {took / seconds['python -c pass']:6.1f} x")


if __name__ == "__main__":
    main()
