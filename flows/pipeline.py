"""All stages in DVC's order, visible one by one in Prefect: `harr run [--recipe NAME]`.

Beside the flow of all stages: one stage, and a promotion or rollback, for the deployments of prefect.yaml.
"""

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from prefect import flow, task
from prefect.client.schemas.objects import State
from prefect.runtime import flow_run, task_run
from prefect.states import Completed

from flows.runtime import flow_runs
from flows.runtime.artifacts import show_results, with_progress
from flows.runtime.prefect_retries import outlast_the_server
from flows.runtime.stage import PARENT, run_flow, say
from flows.runtime.workspace import AS_IT_STANDS, recipe_names, resolve_recipe, store_variables, workspace
from flows.server import TEMPORARY, addresses
from harr.errors import CorpusError, HarrError, PromotionRefused
from harr.io.yaml_file import read_yaml
from harr.params import Params
from harr.rag.sources.providers import open_provider
from tasks.paths import TRAINED_ON
from tasks.tracking.execution import identity

HOURS = 48.0
"""A stage that takes longer hangs, and is stopped."""


def stages() -> list[str]:
    """Return stage names in the order of dvc.yaml, and before them the look at local files."""
    return list(read_yaml(Path("dvc.yaml"), mend="run this in the project's folder")["stages"])


if TYPE_CHECKING:
    Recipe: TypeAlias = str
    Stage: TypeAlias = str
else:  # the form in Prefect offers what there is
    Recipe = Literal[recipe_names()]
    Stage = Literal[tuple(stages()) if Path("dvc.yaml").exists() else ("download",)]


class StageFailed(HarrError, RuntimeError):
    """`dvc repro` of one stage ended with an error, which it has printed."""


@task(task_run_name="dvc:{stage}", timeout_seconds=HOURS * 3600)
def reproduce(stage: str, place: Path = Path()) -> None:
    """Bring one stage up to date; DVC alone decides whether anything has to run.

    The stage's own flow run becomes a child of this task. If this process is stopped, the whole
    process group of DVC is stopped with it, so that no stage runs on as an orphan.
    """
    flow_runs.mend_lock(place)
    own = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT__")}
    if own.get("TMPDIR") == str(TEMPORARY.resolve()):
        del own["TMPDIR"]  # a stage's sockets need a short path
    known = {PARENT: task_run.id, "HARR_EXECUTION": flow_run.id}  # without Prefect there are none
    parents = {name: str(value) for name, value in known.items() if value}
    command = [sys.executable, "-u", "-m", "dvc", "repro", "--single-item", stage]
    shown = sys.stdout.isatty()  # a person sees the bars; a worker's lines go to Prefect's log
    with subprocess.Popen(
        command,
        cwd=place,
        env={**own, **_first_on_path(), **store_variables(), "PYTHONUNBUFFERED": "1", **parents},
        start_new_session=True,
        stdout=None if shown else subprocess.PIPE,
        stderr=None if shown else subprocess.STDOUT,
        text=True,
    ) as process:
        leader = identity(process.pid)
        try:
            flow_runs.note_group(flow_run.id, leader, place)
            for line in process.stdout or ():
                say(line.rstrip())
            code = process.wait()
        except BaseException:
            flow_runs.end_group(leader)
            flow_runs.mend_lock(place)
            raise
    if code:
        told = f"stage {stage} failed (exit {code}); its message is above; later stages did not run"
        raise StageFailed(told + _remedy_without_git(place))


def _remedy_without_git(place: Path) -> str:
    """Say what to do in a folder that DVC refuses because it is of no git repository; "" in every other."""
    inside, settings = place.resolve(), (place / ".dvc").glob("config*")
    if any((folder / ".git").exists() for folder in (inside, *inside.parents)):
        return ""
    if any("no_scm" in path.read_text(encoding="utf-8") for path in settings):
        return ""
    return "; DVC wants a git repository: git init, or `dvc config --local core.no_scm true`"


def _first_on_path() -> dict[str, str]:
    """Return PATH with this Python's folder first, since dvc.yaml says `python`."""
    return {"PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])}


@flow(name="pipeline", flow_run_name="pipeline ({recipe})")
def pipeline(recipe: Recipe = AS_IT_STANDS, promote: bool = False) -> None:
    """Bring every stage up to date, in DVC's order.

    Args:
        recipe: a file of recipes/, which runs in a folder of its own (.harr/runs); or this folder's params.yaml.
        promote: at the end make the candidate the champion, if the interval allows it.
    """
    outlast_the_server()  # also in a worker's process, which does not come by way of flows.runtime.stage
    with flow_runs.noted(flow_run.id), workspace(recipe) as place:
        for stage in with_progress(stages()):
            reproduce(stage, place)
        _keep_candidate(place)
        verdict = _promoted(place) if promote else ""
        _show(place, verdict)


@flow(name="stage", flow_run_name="{stage} ({recipe})")
def one_stage(stage: Stage, recipe: Recipe = AS_IT_STANDS) -> None:
    """Bring one stage up to date; what it needs must be there.

    Args:
        stage: its name in dvc.yaml.
        recipe: as in the flow pipeline.
    """
    outlast_the_server()
    with flow_runs.noted(flow_run.id), workspace(recipe) as place:
        reproduce(stage, place)
        _show(place)


@flow(name="promotion", flow_run_name="promotion ({recipe})")
def promotion(
    recipe: Recipe = AS_IT_STANDS, back: bool = False, again: bool = False, to: str = ""
) -> State[str] | None:
    """Make the candidate the champion, if the interval allows it; or go back to the champion before.

    A run that leaves the champion as it is has not failed: its state is Kept, and says why.

    Args:
        recipe: whose registered model (tracking.registered_model).
        back: roll back.
        again: play the champion again, on the candidate's corpus and questions.
        to: the version to roll back to; "" is the one before.
    """
    from tasks.registry.promote import outcome_of

    place, params = resolve_recipe(recipe)
    place.mkdir(parents=True, exist_ok=True)
    if not back:
        _keep_candidate(place)
    with flow_runs.noted(flow_run.id), _inside(place):
        moved, told = outcome_of("rollback" if back else "promote", params, again=again, to=to)
        if not moved:
            return Completed(name="Kept", message=f"kept: {told}", data=told)
        say(told)
        return None


def _keep_candidate(place: Path) -> None:
    """See that the alias candidate names the model in models/: a stage that DVC took from its cache registered none."""
    from tasks.registry.candidate import has_model, keep_candidate

    with _inside(place):
        try:
            line = keep_candidate(params) if has_model(params := Params.load()) else ""
        except HarrError as error:
            line = f"warning: the model in models/ is not made the candidate: {error}"
    if line:
        say(line)


def _promoted(place: Path) -> str:
    """Return what the gate says; a refusal is an answer, not a failure."""
    from tasks.registry.promote import outcome_of

    with _inside(place):
        moved, told = outcome_of("promote", Params.load())
    verdict = told if moved else f"kept: {told}"
    say(verdict)
    return verdict


def _show(place: Path, verdict: str = "") -> None:
    servers, home = addresses(), Path().resolve()
    with _inside(place):
        show_results(Params.load(), servers, home, verdict)


@contextlib.contextmanager
def _inside(place: Path) -> Iterator[None]:
    """Work in a recipe's folder, with this folder's MLflow store."""
    os.environ.update(store_variables())
    with contextlib.chdir(place):
        yield


def run_recipe(recipe: str, promote: bool, again: bool = False) -> None:
    """Check the recipe and its sources before Prefect starts, then run all stages.

    To train ``again`` is to forget what was trained on: stage index then notes the corpus of today.
    """
    place, params = resolve_recipe(recipe)
    if again:
        shutil.rmtree(place / TRAINED_ON, ignore_errors=True)
    for tool, source in params.sources.items():
        # A recipe of another folder finds its recordings there, once it is made.
        if source.kind != "milvus" and not (source.kind == "cassette" and place != Path()):
            open_provider(tool, source)
    run_flow(pipeline, recipe=recipe, promote=promote)


def register_model(recipe: str) -> str:
    """Make the model in models/ of a recipe the candidate; returns what was done."""
    from tasks.registry.candidate import keep_candidate

    place, params = resolve_recipe(recipe)
    if not place.exists():
        raise CorpusError(f"{place} is not there; run `harr run --recipe {recipe}`")
    with _inside(place):
        name = params.tracking.registered_model
        return keep_candidate(params, by_hand=True) or f"the model in models/ is the candidate of {name} already"


def run_promotion(recipe: str, back: bool, again: bool = False, to: str = "") -> None:
    """Check the recipe before Prefect starts, then promote its candidate or go back.

    Raises:
        PromotionRefused: the champion is kept.
    """
    resolve_recipe(recipe)
    if kept := run_flow(promotion, recipe=recipe, back=back, again=again, to=to):
        raise PromotionRefused(getattr(kept, "data", kept))
