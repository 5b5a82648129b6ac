"""All stages in DVC's order, visible one by one in Prefect: `python -m flows.pipeline [--recipe NAME]`."""

import argparse
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import yaml
from prefect import flow, task
from prefect.runtime import flow_run, task_run

from flows.common import PARENT, run_command, run_stage
from harr.errors import HarrError, ParamsError
from harr.params import Params

RECIPES = Path("recipes")


class StageFailed(HarrError, RuntimeError):
    """`dvc repro` of one stage ended with an error, which it has printed."""


def stages() -> list[str]:
    """Stage names in the order of dvc.yaml."""
    return list(yaml.safe_load(Path("dvc.yaml").read_text(encoding="utf-8"))["stages"])


@task(task_run_name="dvc:{stage}")
def reproduce(stage: str) -> None:
    """Bring one stage up to date; DVC alone decides whether anything has to run.

    The stage's own flow run becomes a child of this task. If this process is stopped, the whole
    process group of DVC is stopped with it, so that no stage runs on as an orphan.
    """
    mend_lock()
    known = {PARENT: task_run.id, "HARR_EXECUTION": flow_run.id}  # without Prefect there are none
    environment = {**os.environ, **{name: str(value) for name, value in known.items() if value}}
    process = subprocess.Popen(
        [sys.executable, "-m", "dvc", "repro", "--single-item", stage], env=environment, start_new_session=True
    )
    try:
        code = process.wait()
    except BaseException:
        os.killpg(process.pid, signal.SIGINT)  # DVC waits for the stage and gives its locks back
        process.wait()
        raise
    if code:
        raise StageFailed(f"stage {stage} failed (exit {code}); its message is above; later stages did not run")


def mend_lock() -> None:
    """A kill can leave DVC's lock file empty, and every later command would fail on it."""
    lock = Path(".dvc/tmp/rwlock")
    if lock.exists() and not lock.read_text(encoding="utf-8").strip():
        lock.unlink()


@flow(name="pipeline")
def pipeline(recipe: str = "") -> None:
    """Reproduce every stage; ``recipe`` names a file in recipes/ that becomes params.yaml first."""
    use_recipe(recipe)
    for stage in stages():
        reproduce(stage)


def use_recipe(recipe: str) -> None:
    """Copy recipes/<recipe>.yaml to params.yaml after checking it; an empty name leaves params.yaml alone.

    Raises:
        ParamsError: there is no such recipe, or it is wrong.
    """
    if not recipe:
        return
    path = RECIPES / f"{recipe}.yaml"
    if not path.exists():
        known = ", ".join(sorted(p.stem for p in RECIPES.glob("*.yaml")))
        raise ParamsError(f"no recipe {recipe!r}; there are: {known}")
    Params.load(path)
    shutil.copyfile(path, "params.yaml")


def run_recipe(recipe: str) -> None:
    """Check the recipe before Prefect starts, then run all stages."""
    use_recipe(recipe)
    run_stage(pipeline, recipe=recipe)


def command() -> None:
    """Run the pipeline from the command line."""
    parser = argparse.ArgumentParser(prog="python -m flows.pipeline", description=pipeline.__doc__)
    parser.add_argument("--recipe", default="", help="name of a file in recipes/, without .yaml")
    recipe = parser.parse_args().recipe
    run_command(lambda: run_recipe(recipe))


if __name__ == "__main__":
    command()
