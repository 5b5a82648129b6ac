"""What people schedule in Prefect: all stages in DVC's order, one stage, a promotion or rollback (prefect.yaml).

Every stage is a task, which runs `dvc repro` and passes its lines on to Prefect's log. Prefect handles the log, the
time limit and cancelling; the stage itself works without Prefect.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from prefect import flow, task
from prefect.client.schemas.objects import State
from prefect.runtime import flow_run
from prefect.states import Completed

from flows import run
from flows.agents import run_on_agent
from flows.reproduce import reproduce
from flows.workspace import AS_IT_STANDS, recipe_names, workspace
from harr.params import Params
from tasks.paths import METRICS
from tasks.runtime.output import end_of_run

HOURS = 48.0
"""Hours after which a stage counts as hanging, and is stopped."""

if TYPE_CHECKING:
    Recipe: TypeAlias = str
    Stage: TypeAlias = str
else:  # Prefect's form offers the choices
    Recipe = Literal[recipe_names()]
    Stage = Literal[tuple(run.stages()) if Path("dvc.yaml").exists() else ("download",)]


@task(task_run_name="{stage}", timeout_seconds=HOURS * 3600, log_prints=True)
def bring_up_to_date(stage: str, place: Path, pool: str = "") -> None:
    """Bring one stage up to date; if this run is cancelled, the stage stops between two units of work.

    With a ``pool`` it runs on an agent, after which DVC finds it done here.
    """
    if pool:
        run_on_agent(stage, place, pool, str(flow_run.id))
    reproduce([stage], place, str(flow_run.id), print)


def name_run() -> str:
    """Return the run's name from the form with its recipe, which a retried run's name already has."""
    name, recipe = flow_run.name, f" ({flow_run.parameters['recipe']})"
    return f"{name.removesuffix(recipe)}{recipe}"


@flow(name="pipeline", flow_run_name=name_run, log_prints=True)
def pipeline(
    recipe: Recipe = AS_IT_STANDS, promote: bool = False, agents: dict[Stage, str] | None = None
) -> State[str] | None:
    """Bring every stage up to date, in DVC's order.

    A run that leaves the champion as it is has not failed: its state is Kept, and says why.

    Args:
        recipe: a file of recipes/, which runs in its own folder (.harr/runs); or this folder's params.yaml.
        promote: at the end make the candidate the champion, if the interval allows it.
        agents: work pools of the stages that run on other machines, by stage; the others run in this folder.
    """
    with workspace(recipe) as place:
        for stage in run.stages():
            bring_up_to_date(stage, place, (agents or {}).get(stage, ""))
        moved, verdict = run.finish(place, promote=promote)
        with run.enter_folder(place):
            if (METRICS / "evaluate.json").exists():
                print(end_of_run(Params.load()))
    return _kept(verdict) if verdict and not moved else None


@flow(name="stage", flow_run_name="{stage} ({recipe})", log_prints=True)
def one_stage(stage: Stage, recipe: Recipe = AS_IT_STANDS) -> None:
    """Bring one stage up to date; what it needs must be there.

    Args:
        stage: its name in dvc.yaml.
        recipe: as in the flow pipeline.
    """
    with workspace(recipe) as place:
        bring_up_to_date("inputs", place)
        if stage != "inputs":
            bring_up_to_date(stage, place)


@flow(name="promotion", flow_run_name="promotion ({recipe})", log_prints=True)
def promotion(
    recipe: Recipe = AS_IT_STANDS, back: bool = False, again: bool = False, to: str = ""
) -> State[str] | None:
    """Make the candidate the champion, if the interval allows it; or go back to the previous champion.

    A run that leaves the champion as it is has not failed: its state is Kept, and says why.

    Args:
        recipe: the one whose registered model it is (tracking.registered_model).
        back: roll back.
        again: play the champion again, on the candidate's corpus and questions.
        to: the version to roll back to; "" is the previous one.
    """
    moved, message = run.promote(recipe, back=back, again=again, to=to)
    if not moved:
        return _kept(f"kept: {message}")
    print(message)
    return None


def _kept(verdict: str) -> State[str]:
    return Completed(name="Kept", message=verdict, data=verdict)
