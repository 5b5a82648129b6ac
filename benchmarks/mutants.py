"""How many small faults do the tests see? ``python -m benchmarks.mutants map``, then ``... run``, on a committed tree.

``map`` runs the tests once and notes which of them reach which line, in the test's process and in those it starts, and
how long each takes. ``run`` draws mutants with a seed: one comparison, sign, constant or call of the code is changed.
For each it runs the tests that reach the line in a clone, quick ones first, until one fails that passes without the
mutant. A mutant that hangs counts as seen. A stopped run can be resumed. Both write to ``work/mutants``.

The share of mutants that tests see is the *mutation score* (DeMillo, Lipton & Sayward 1978, "Hints on test data
selection").
"""

import argparse
import ast
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.made import ROOT

FOLDERS = ("harr/train", "harr/rag", "harr/evaluate", "harr/index", "harr/io", "tasks/registry")
OUT = ROOT / "work/mutants"
TEST, SETTINGS = "HARR_TEST", "HARR_MUTANTS_COVERAGE"
"""Environment variables: the running test, and coverage's settings for the processes that it starts."""
TIERS = {"test": "not (services or soak or vllm)", "services": "services"}
PRELOADED = (
    "torch transformers sentence_transformers peft trl pandas pyarrow mlflow prefect matplotlib.pyplot scipy.stats"
)
"""Slow imports of the tests; made once, before a process is forked for every mutant."""
QUIET = ("-W", "ignore::pytest.PytestAssertRewriteWarning")
"""Plugins are already loaded."""
SECONDS = 150.0
"""Time limit for one mutant's tests, by the times of ``map``; after a hundred seconds more, it hangs."""

COMPARED = {ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==", ast.In: "not in",
            ast.NotIn: "in", ast.Is: "is not", ast.IsNot: "is"}  # fmt: skip
SIGNED = {ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*", ast.FloorDiv: "*", ast.Mod: "*"}


@dataclass(frozen=True)
class Mutant:
    """A change of one expression or statement: bytes ``start`` to ``end`` of a file become ``new``."""

    path: str
    line: int
    kind: str
    start: int
    end: int
    old: str
    new: str


def mutants(path: Path) -> Iterator[Mutant]:
    """Yield every mutant of a file. Docstrings, messages and annotations do not change."""
    data, file = path.read_bytes(), path.relative_to(ROOT).as_posix()
    starts = [0]
    for line in data.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def mutant(node: Any, kind: str, new: str) -> Mutant:
        start, end = starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset
        return Mutant(file, node.lineno, kind, start, end, data[start:end].decode(), new)

    def between(left: ast.expr, right: ast.expr, kind: str, new: str) -> Mutant:
        """Change the operator between two expressions."""
        start = starts[left.end_lineno - 1] + left.end_col_offset  # type: ignore[operator]
        end = starts[right.lineno - 1] + right.col_offset
        old = data[start:end].decode()
        changed = re.sub(r"[<>=!+\-*/%]+|\b(not\s+in|is\s+not|in|is)\b", new, old, count=1)
        return Mutant(file, right.lineno, kind, start, end, old, changed)

    def visit(node: ast.AST) -> Iterator[Mutant]:
        if isinstance(node, ast.Compare):
            for left, operator, right in zip([node.left, *node.comparators], node.ops, node.comparators, strict=False):
                yield between(left, right, "comparison", COMPARED[type(operator)])
        elif isinstance(node, ast.BinOp) and type(node.op) in SIGNED and not _is_text(node):
            yield between(node.left, node.right, "sign", SIGNED[type(node.op)])
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.Not):
            yield mutant(node, "sign", f"({ast.unparse(node.operand)})")
        elif isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
            yield mutant(node, "constant", str(not node.value) if isinstance(node.value, bool) else f"{node.value + 1}")
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            yield mutant(node, "call", "pass")
        if isinstance(node, ast.JoinedStr):
            return
        for name, value in ast.iter_fields(node):
            if name not in ("annotation", "returns", "type_params"):
                for child in value if isinstance(value, list) else [value]:
                    if isinstance(child, ast.AST):
                        yield from visit(child)

    yield from visit(ast.parse(data))


def _is_text(node: ast.BinOp) -> bool:
    return any(isinstance(one, ast.JoinedStr | ast.Constant) and isinstance(getattr(one, "value", ""), str)
               for one in (node.left, node.right))  # fmt: skip


def draw(count: int, seed: int) -> list[Mutant]:
    """Return mutants of all folders, all equally likely."""
    every = [one for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py")) for one in mutants(path)]
    return random.Random(seed).sample(every, count)


# --- map: a pytest plugin, `-p benchmarks.mutants`, that records times and reached lines ---

_coverage: Any = None


def pytest_configure(config: Any) -> None:
    """Measure in each process that runs tests; pytest-xdist's main process runs none."""
    global _coverage
    if SETTINGS in os.environ and (hasattr(config, "workerinput") or not getattr(config.option, "numprocesses", None)):
        import coverage

        os.environ |= {TEST: "collection", "COVERAGE_PROCESS_START": str(_settings("processes", "patch = subprocess"))}
        _coverage = coverage.Coverage(config_file=str(_settings("tests")), data_suffix=True)
        _coverage.start()


def pytest_runtest_logstart(nodeid: str, location: object) -> None:
    """Attribute what runs from here on to this test."""
    if _coverage:
        os.environ[TEST] = plain(nodeid)
        _coverage.switch_context(plain(nodeid))


def pytest_runtest_logreport(report: Any) -> None:
    """Record how long a part of a test took."""
    if _coverage:
        with (OUT / "map/times.jsonl").open("a") as file:
            file.write(json.dumps([plain(report.nodeid), report.duration]) + "\n")


def pytest_unconfigure(config: object) -> None:
    """Save the reached lines."""
    if _coverage:
        _coverage.stop()
        _coverage.save()


def plain(nodeid: str) -> str:
    """Return a test's name without the group that pytest-xdist appends.

    >>> plain("tests/test_docs.py::test_b[x@y]@tests/test_docs.py")
    'tests/test_docs.py::test_b[x@y]'
    """
    return re.sub(r"@[\w./-]+$", "", nodeid)


def _settings(name: str, *more: str) -> Path:
    path = OUT / f"map/{name}.rc"
    folders = "".join(f"\n    {ROOT / folder}" for folder in FOLDERS)
    lines = ["[run]", f"source_dirs ={folders}", "parallel = true", f"data_file = {OUT / 'map/coverage'}", *more]
    path.write_text("\n".join([*lines, *(["context = ${" + TEST + "}"] if more else [])]) + "\n")
    return path


def make_map() -> None:
    """Run the tests once."""
    shutil.rmtree(OUT / "map", ignore_errors=True)
    (OUT / "map").mkdir(parents=True)
    expression = " or ".join(f"({one})" for one in TIERS.values())
    words = ["-n", "2", "--dist", "loadgroup", "-p", "benchmarks.mutants", "-m", expression]
    environment = os.environ | {SETTINGS: "1", "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-m", "pytest", *words], cwd=ROOT, env=environment, check=False)
    subprocess.run([sys.executable, "-m", "coverage", "combine", "--quiet", f"--data-file={OUT / 'map/coverage'}",
                    str(OUT / "map")], cwd=ROOT, check=True)  # fmt: skip


# --- run ---


class Reach:
    """Which tests reach a line, by the file of ``map``, quick ones first."""

    def __init__(self, folder: Path) -> None:
        from coverage import CoverageData

        self.data = CoverageData(str(folder / "coverage"))
        self.data.read()
        self.seconds: dict[str, float] = defaultdict(float)
        for line in (folder / "times.jsonl").read_text().splitlines():
            name, seconds = json.loads(line)
            self.seconds[name] += seconds

    def tests(self, mutant: Mutant) -> list[str]:
        """Return the tests that reach the line, or any line of the file if it runs only at import."""
        by_line = self.data.contexts_by_lineno(str(ROOT / mutant.path))
        names = {*by_line.get(mutant.line, [])} & self.seconds.keys()
        names = names or {name for line in by_line.values() for name in line} & self.seconds.keys()
        chosen, whole = [], 0.0
        for name in sorted(names, key=lambda one: (self.seconds[one], one)):
            whole += self.seconds[name]
            if not chosen or whole <= SECONDS:
                chosen.append(name)
        return chosen


class Trial:
    """A clone in which mutants are tried; tests that fail there without a mutant are left out."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.sound: dict[str, bool] = {}
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(folder)], check=True)

    def fate(self, mutant: Mutant, tests: list[str], tier: str) -> str:
        """Return "killed", "survived" or "hangs" for a mutant and the tests of one tier."""
        path = self.folder / mutant.path
        data = path.read_bytes()
        while True:
            path.write_bytes(data[: mutant.start] + mutant.new.encode() + data[mutant.end :])
            fate, failed = self.pytest([name for name in tests if self.sound.get(name, True)], tier)
            path.write_bytes(data)
            if failed and failed not in self.sound:
                self.sound[failed] = self.pytest([failed], tier)[0] == "survived"
            if fate == "killed" and not failed and self.pytest(tests, tier)[0] != "survived":
                raise RuntimeError(f"tests fail without a mutant: see {self.folder}.log")  # a module cannot be loaded
            if not failed or self.sound[failed]:
                return fate

    def pytest(self, tests: list[str], tier: str) -> tuple[str, str]:
        """Run tests in a forked process until one fails; return the outcome and that test."""
        child = os.fork()
        if not child:
            os.setsid()
            _be_pytest([*tests, "-x", "-q", "-p", "no:cacheprovider", "-m", TIERS[tier], *QUIET], self.folder)
        deadline = time.monotonic() + SECONDS + 100
        while time.monotonic() < deadline:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                if os.waitstatus_to_exitcode(status) in (0, 5):
                    return "survived", ""
                log = self.folder.with_suffix(".log").read_text(errors="replace")
                failed = re.search(
                    r"^(?:FAILED |ERROR |ERROR: not found: \S+/clone-\d+/)(\S+::.+?)(?: - .*)?$", log, re.M
                )
                return "killed", plain(failed[1]) if failed else ""
            time.sleep(0.05)
        os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return "hangs", ""


def _be_pytest(words: list[str], copy: Path) -> None:
    """Run pytest in a copy of the tree, then exit this process."""
    os.chdir(copy)
    with copy.with_suffix(".log").open("wb") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    code = 3
    try:
        os.environ |= {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
        sys.dont_write_bytecode = True  # else bytecode hides a mutant of equal size and time
        sys.path[:] = [str(copy), *(one for one in sys.path if one not in ("", str(ROOT)))]
        for name in [name for name in sys.modules if re.match(r"(harr|tasks|flows|benchmarks)\b", name)]:
            del sys.modules[name]
        import pytest

        code = int(pytest.main(words))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


def run(count: int, seed: int, part: int, parts: int, tiers: list[str]) -> None:
    """Try this part's mutants that were not tried yet."""
    reach, results = Reach(OUT / "map"), OUT / f"results-{seed}-{part}.jsonl"
    known = {json.dumps(json.loads(line)["mutant"]) for line in results.open()} if results.exists() else set()
    trial = Trial(OUT / f"clone-{part}")
    os.environ["OMP_NUM_THREADS"] = "1"
    for name in PRELOADED.split():
        import_module(name)
    for mutant in draw(count, seed)[part::parts]:
        if json.dumps(asdict(mutant)) in known:
            continue
        began, tests, fate, tier = time.monotonic(), reach.tests(mutant), "survived", ""
        for tier in tiers:
            if tests and (fate := trial.fate(mutant, tests, tier)) != "survived":
                break
        row = {"mutant": asdict(mutant), "fate": fate, "tier": tier, "tests": len(tests)}
        with results.open("a") as file:
            file.write(json.dumps(row | {"seconds": round(time.monotonic() - began, 1)}) + "\n")
        change = f"{mutant.old.strip()!r} -> {mutant.new.strip()!r}"
        print(f"{fate} by {tier}, {len(tests)} tests: {mutant.path}:{mutant.line} {change}", flush=True)


def table(seed: int) -> str:
    """Return counts by folder: mutants, those that `make test` sees, and those that both tiers see."""
    rows = [json.loads(line) for path in sorted(OUT.glob(f"results-{seed}-*.jsonl")) for line in path.open()]
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for row in rows:
        folder = next(name for name in FOLDERS if row["mutant"]["path"].startswith(f"{name}/"))
        for name in (folder, "all"):
            counts[name]["mutants"] += 1
            counts[name]["test"] += row["fate"] != "survived" and row["tier"] == "test"
            counts[name]["both"] += row["fate"] != "survived"
    lines = [f"{'folder':16} mutants  make test  and services"]
    for name in [*(one for one in FOLDERS if one in counts), "all"]:
        one = counts[name]
        lines.append(f"{name:16} {one['mutants']:7}  {one['test']:9}  {one['both']:12}")
    return "\n".join(lines)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("what", choices=["map", "run", "table"])
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--part", default="0/1", help="which part of how many, to run two beside each other: 0/2 and 1/2"
    )
    parser.add_argument("--tiers", nargs="+", choices=TIERS, default=[*TIERS])
    options = parser.parse_args()
    if options.what == "map":
        make_map()
    elif options.what == "run":
        part, parts = map(int, options.part.split("/"))
        run(options.count, options.seed, part, parts, options.tiers)
    print(table(options.seed))


if __name__ == "__main__":
    main()
