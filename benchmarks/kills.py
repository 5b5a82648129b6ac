"""Kill `dvc repro` itself, or what it started, at evenly spread moments: ``python -m benchmarks.kills --kills 300``.

The tiny world of ``benchmarks.crash``, in a project made by `harr init`: a stage runs as `harr run` starts it,
`dvc repro --single-item STAGE`, and the promotion as `harr promote`. A stage's kills are spread evenly over the time of
its undisturbed run, from DVC's start to its end, alternating between SIGKILL and SIGTERM and between DVC's process, the
stage's and the whole group (DVC's if no stage runs at that moment). After one to four kills, each made when everything
started before has ended, the same command runs to its end. Everything is compared as in ``benchmarks.crash``, and so
are dependencies and parameters in dvc.lock.

Great Expectations runs; Prefect does not, which saves starting a server per kill.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import psutil
import yaml

from benchmarks import crash
from benchmarks.crash import STAGES, Attempt, Place, prepare, troubles
from benchmarks.made import ROOT, artifacts
from flows.reproduce import mend_lock
from harr.io.files import fingerprint
from harr.project.create import create_project

MARK = "HARR_KILLS"
"""A variable that every process of an attempt inherits."""
WAYS = [(number, victim) for number in ("SIGKILL", "SIGTERM") for victim in ("dvc", "stage", "group")]
LOOK_SECONDS, END_SECONDS = 0.2, 60.0
"""How often to look for remaining processes, and the time after a kill in which all must have ended."""
Kill = tuple[float, str, str]  # share of the stage's time, signal, victim


def let_trained_win(here: Path) -> None:
    """Give trained a gain that passes the gate, and commit its rows to DVC."""
    crash.let_trained_win(here)
    subprocess.run([sys.executable, "-m", "dvc", "commit", "--force", "evaluate"], cwd=here, check=True)


def run(place: Place, stage: str, kill: Kill | None = None, whole: float = 0.0) -> Attempt:
    """Run a stage, or kill it; after a complete run note what it made. ``whole`` is the stage's time."""
    own = {name: os.environ[name] for name in ("HOME", "LANG", "OMP_NUM_THREADS") if name in os.environ}
    environment = own | {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "PYTHONPATH": str(ROOT),
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "PREFECT_API_URL": "http://127.0.0.1:9/api",
        "DVC_SITE_CACHE_DIR": str(place.here / ".dvc/site"),
        "TMPDIR": str(place.root / "tmp"),
        MARK: str(place.root),
    }
    program = (
        ["flows.cli", "promote", "--arm", "trained"] if stage == "promote" else ["dvc", "repro", "--single-item", stage]
    )
    began = time.monotonic()
    with (place.root / "log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", *program], cwd=place.here, env=environment, start_new_session=True, stdout=log,
            stderr=log,
        )  # fmt: skip
    victim = ""
    if kill:
        with suppress(subprocess.TimeoutExpired):
            process.wait(kill[0] * whole)
        victim = _strike(process, stage, *kill[1:]) if process.poll() is None else ""
    code, seconds = process.wait(), time.monotonic() - began
    attempt = {"code": code, "seconds": seconds, "events": 0, "units": 0, "session": process.pid, "victim": victim}
    attempt |= {"reported": False, "late": _wait_for_all(place)}
    ended = not victim and (code == 0 or stage == "promote")
    return attempt | {"artifacts": _made(place, stage)} if ended else attempt


def _strike(process: subprocess.Popen[bytes], stage: str, name: str, victim: str) -> str:
    """Send the signal and return whom it hit."""
    number = signal.Signals[name]
    below = [one for one in psutil.Process(process.pid).children(recursive=True) if _runs(one, f"tasks.{stage}")]
    if victim == "group":
        os.killpg(process.pid, number)
        return victim if below else "group without a stage"
    met = below[0].pid if victim == "stage" and below else process.pid
    os.kill(met, number)
    return "stage" if met != process.pid else "dvc" if below else "dvc without a stage"


def _runs(process: psutil.Process, module: str) -> bool:
    with suppress(psutil.Error):
        return module in process.cmdline()
    return False


def _wait_for_all(place: Place) -> float:
    """Wait until no process of an attempt runs, and return the seconds that took."""
    for look in range(int(END_SECONDS / LOOK_SECONDS)):
        if not _processes(place):
            return look * LOOK_SECONDS
        time.sleep(LOOK_SECONDS)
    return END_SECONDS


def _processes(place: Place) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.status() != psutil.STATUS_ZOMBIE and process.environ().get(MARK) == str(place.root):
                found.append(process)
    return found


def _made(place: Place, stage: str) -> dict[str, str]:
    """Return digests of all that a stage made, taken in a child, since Milvus Lite serves one folder per process."""
    report = place.root / "report.json"
    report.unlink(missing_ok=True)
    child = os.fork()
    if not child:
        os.chdir(place.here)
        report.write_text(json.dumps(artifacts(stage)))
        os._exit(0)
    os.waitpid(child, 0)
    made: dict[str, str] = json.loads(report.read_text())
    lock = yaml.safe_load((place.here / "dvc.lock").read_text())["stages"].get(stage, {})
    return made | {"dvc.lock": fingerprint({name: lock.get(name) for name in ("cmd", "deps", "params")})}


def chain(place: Place, stage: str, calm: Attempt, planned: list[Kill]) -> tuple[list[Attempt], list[str]]:
    """Make some kills, then a run that must succeed; return the kills that hit something, and what was wrong."""
    place.restore(stage)
    met: list[Attempt] = []
    found: list[str] = []
    for kill in planned:
        attempt = run(place, stage, kill, calm["seconds"])
        if not attempt["victim"]:  # there was less to do than in the undisturbed run
            calm["seconds"] = calm["seconds"] if met else min(calm["seconds"], attempt["seconds"])
            break
        met.append(attempt | {"signal": kill[1], "after": kill[0] * calm["seconds"]})
        if _processes(place):
            found.append(f"runs on {END_SECONDS:.0f} s after {kill[1]} of {attempt['victim']}")
            for process in _processes(place):
                process.kill()
        mend_lock(place.here)  # as `harr run` does: a kill while DVC writes its lock file leaves it empty
    else:
        attempt = run(place, stage)
    return met, found + troubles(place, stage, attempt, calm, met)


def plan(kills: int, draw: random.Random) -> list[Kill]:
    """Return kills at moments spread evenly over a stage's time, every way in turn, in random order."""
    planned = [((place + 0.5) / kills, *WAYS[place % len(WAYS)]) for place in range(kills)]
    draw.shuffle(planned)
    return planned


def undisturbed(place: Place) -> dict[str, Attempt]:
    """Make the project and run all stages, or use what an earlier run kept in the folder."""
    note = place.root / "calm.json"
    if not note.exists():
        (place.root / "tmp").mkdir(parents=True)
        create_project(place.here)
        calm = prepare(place, run, {"merge": let_trained_win})
        note.write_text(json.dumps(calm))
    kept: dict[str, Attempt] = json.loads(note.read_text())
    return kept


def main() -> int:
    """Print a line per chain and a final table; exit with 1 if anything differed."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("--kills", 300), ("--seed", 0)):
        parser.add_argument(name, type=int, default=default)
    parser.add_argument("--folder", type=Path, help="where the undisturbed run is kept, and taken from the next time")
    options = parser.parse_args()
    draw = random.Random(options.seed)
    kills: list[tuple[str, str, str]] = []
    chains, wrong, late = Counter[str](), Counter[str](), 0.0
    with tempfile.TemporaryDirectory(prefix="kills-") as folder:
        place = Place(options.folder or Path(folder))
        calm = undisturbed(place)
        left = {stage: plan(-(-options.kills // len(STAGES)), draw) for stage in STAGES}
        try:
            while any(left.values()):
                stage = max(STAGES, key=lambda name: len(left[name]))
                planned = [left[stage].pop() for _ in range(min(draw.choice((1, 2, 3, 4)), len(left[stage])))]
                met, found = chain(place, stage, calm[stage], planned)
                left[stage] = planned[len(met) :] + left[stage]  # late ones are tried again
                kills += [(stage, one["signal"], one["victim"]) for one in met]
                chains[stage] += 1
                wrong[stage] += bool(found)
                late = max([late, *(one["late"] for one in met)])
                ways = ", ".join(f"{one['signal']} of {one['victim']} at {one['after']:.1f} s" for one in met)
                print(f"{len(kills)} {stage}: {ways}", flush=True)
                for line in found:
                    print(f"WRONG {stage}: {line}", flush=True)
                if found:
                    print("\n".join((place.root / "log").read_text().splitlines()[-25:]), flush=True)
                (place.root / "log").unlink(missing_ok=True)
        except KeyboardInterrupt:
            print("stopped")
        for process in _processes(place):
            process.kill()
    for name in STAGES:
        own = Counter(f"{number} of {victim}" for stage, number, victim in kills if stage == name)
        ways = ", ".join(f"{count} {way}" for way, count in sorted(own.items()))
        print(f"{name}: {own.total()} kills, {chains[name]} reruns, {wrong[name]} with a difference ({ways})")
    print(f"all: {len(kills)} kills, {chains.total()} reruns, {wrong.total()} with a difference")
    print(f"the last process ended at most {late:.1f} s after its kill")
    return int(wrong.total() > 0)


if __name__ == "__main__":
    sys.exit(main())
