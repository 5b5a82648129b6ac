"""What our first entry of dvc.yaml costs when nothing changed: ``python -m benchmarks.overhead``.

A `dvc repro` with nothing to do: our graph, whose first entry checks parameters and code, against the same stages with
only their data, both with commands that only write outputs. The two take turns, so that a busy machine slows both.
"""

import os
import resource
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
REPEATS = 7
WRITE = """
import sys
from pathlib import Path
for name in sys.argv[1:]:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix:
        path.write_text("{}")
    else:
        path.mkdir()
        for part in ("manifest.json", "train.jsonl", "validation.jsonl", "test.jsonl"):
            (path / part).write_text("{}")
"""


def names(entries: list[Any]) -> list[str]:
    """Return the paths of DVC outputs, with or without options."""
    return [entry if isinstance(entry, str) else next(iter(entry)) for entry in entries]


def graph(bare: bool) -> dict[str, Any]:
    """Return the stages of dvc.yaml with commands that only write; ``bare``: without their inputs."""
    stages = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
    for name, stage in stages.items():
        if name != "inputs":
            made = names([*stage["outs"], *stage.get("metrics", []), *stage.get("plots", [])])
            stage["cmd"] = f"python write.py {' '.join(made)}"
        if bare:
            stage["deps"] = [dep for dep in stage.get("deps", ()) if not dep.startswith("data/inputs")]
    return {"stages": {name: stage for name, stage in stages.items() if not (bare and name == "inputs")}}


def make_tree(folder: Path, bare: bool) -> None:
    """Make a repository with the graph, and run it once."""
    folder.mkdir()
    for name in ("harr", "tasks"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in (".dvcignore", "params.yaml"):
        shutil.copy(ROOT / name, folder)
    (folder / "dvc.yaml").write_text(yaml.safe_dump(graph(bare), sort_keys=False))
    (folder / "write.py").write_text(WRITE)
    for words in (["git", "init", "-q"], ["dvc", "init", "-q"], ["dvc", "repro", "-q"]):
        subprocess.run(words, cwd=folder, check=True)


def seconds(command: list[str], folder: Path, environment: Mapping[str, str]) -> tuple[float, float]:
    """Return wall time and processor time of a command that must succeed."""
    began, used = time.perf_counter(), processor_seconds()
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
    return time.perf_counter() - began, processor_seconds() - used


def processor_seconds() -> float:
    """Return the processor time that ended children have used so far."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def compare(what: str, kinds: Mapping[str, Callable[[], tuple[float, float]]]) -> None:
    """Print wall and processor time of two kinds that take turns, and the difference; the first round warms up."""
    spent: dict[str, list[tuple[float, float]]] = {kind: [] for kind in kinds}
    for number in range(REPEATS + 1):
        for kind, run in kinds.items():
            taken = run()
            if number:
                spent[kind].append(taken)
    figures = {kind: summary(values) for kind, values in spent.items()}
    first, second = figures.values()
    figures["added"] = tuple(a - b for a, b in zip(first, second, strict=True))
    for kind, (median, least, processor) in figures.items():
        print(f"{what:<17} {kind:<13} wall: median {median:5.2f}, least {least:5.2f}   processor: {processor:5.2f} s")


def summary(values: list[tuple[float, float]]) -> tuple[float, ...]:
    """Return median and least wall time, and median processor time."""
    wall, processor = zip(*values, strict=True)
    return statistics.median(wall), min(wall), statistics.median(processor)


def main() -> None:
    """Print the comparison."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        for kind in ("ours", "bare"):
            make_tree(place / kind, bare=kind == "bare")
        repro = ["dvc", "repro"]
        compare(
            "dvc repro, no-op",
            {kind: lambda kind=kind: seconds(repro, place / kind, os.environ) for kind in ("ours", "bare")},
        )


if __name__ == "__main__":
    main()
