"""All stages of a recipe, and what follows: the candidate and its promotion. Prefect is not involved."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from flows.reproduce import BEFORE_TRAINING, reproduce
from flows.workspace import resolve_recipe, store_variables, workspace
from harr.arms import TRAINED
from harr.errors import CorpusError, HarrError, PromotionRefused
from harr.io.yaml_file import read_yaml
from harr.params import Params
from harr.rag.sources.providers import open_provider
from tasks.paths import EVALUATION, SETTINGS, TRAINED_ON
from tasks.runtime.output import end_of_run


def stages() -> list[str]:
    """Return the stage names in the order of dvc.yaml, the check of their inputs first."""
    return list(read_yaml(Path("dvc.yaml"), mend="run this in the project's folder")["stages"])


def run_recipe(recipe: str, promote: bool, again: bool = False) -> None:
    """Check the recipe and its sources, run all stale stages, and print the table of arms.

    Training ``again`` forgets what was trained on: stage index then records today's corpus.
    """
    _, params = resolve_recipe(recipe)
    for tool, source in params.sources.items():
        if source.kind != "milvus":
            open_provider(tool, source)
    with workspace(recipe) as place:
        if again:
            shutil.rmtree(place / TRAINED_ON, ignore_errors=True)
        reproduce([], place, "")
        finish(place, promote=promote)
        with enter_folder(place):
            print(end_of_run(params))


def finish(place: Path, *, promote: bool) -> tuple[bool, str]:
    """Point the alias candidate at the model in models/, and promote it if asked to.

    Returns whether the champion moved, and what the gate says: a refusal is an answer, not a failure.
    """
    from tasks.registry.promote import outcome_of

    keep_candidate(place)
    if not promote:
        return False, ""
    with enter_folder(place):
        moved, message = outcome_of("promote", Params.load())
    verdict = message if moved else f"kept: {message}"
    print(verdict)
    return moved, verdict


def keep_candidate(place: Path) -> None:
    """Point the alias candidate at the model in models/: a stage that DVC took from its cache registered none."""
    try:
        line = _make_candidate(place)
    except HarrError as error:
        line = f"warning: the model in models/ is not made the candidate: {error}"
    if line:
        print(line)


def _make_candidate(place: Path, *, by_hand: bool = False) -> str:
    """Make the model in models/ the candidate; return a line on it, or "" if it already was."""
    from tasks.registry.candidate import has_model, keep_candidate

    with enter_folder(place):
        params = Params.load()
        return keep_candidate(params, by_hand=by_hand) if by_hand or has_model(params) else ""


def promote(recipe: str, *, back: bool = False, arm: str = "", again: bool = False, to: str = "") -> tuple[bool, str]:
    """Promote an arm of a recipe or go back; return whether the champion moved, and what was done or why not.

    For an ``arm``, the stages that an untrained one needs are run, unless there is an evaluation of ``trained``.
    """
    from tasks.registry.promote import outcome_of

    place, params = resolve_recipe(recipe)
    place.mkdir(parents=True, exist_ok=True)
    if arm and not (place / EVALUATION / f"{TRAINED}.jsonl").exists():
        with workspace(recipe):
            reproduce(BEFORE_TRAINING, place, "")
    if not back:
        keep_candidate(place)
    with enter_folder(place):
        return outcome_of("rollback" if back else "promote", params, arm=arm, again=again, to=to)


def record_runs(recipe: str, *, register: bool = False) -> list[str]:
    """Report what MLflow has not received, make a recipe's model in models/ the candidate, and return lines on both.

    Args:
        recipe: its name, or params.yaml.
        register: whether there must be a model, which becomes the candidate even if it was rolled back.

    Raises:
        CorpusError: there is no model to ``register``.
        ServiceUnavailable: a server does not answer; what it has not taken stays.
    """
    from tasks.tracking.report import send_reports

    place, _ = resolve_recipe(recipe)
    ran = (place / SETTINGS).exists()
    if register and not ran:
        raise CorpusError(f"{place} is not there; run `harr run --recipe {recipe}`")
    lines = send_reports()
    line = _make_candidate(place, by_hand=register) if ran else ""
    return [*lines, *([line] if line else [])]


def run_promotion(recipe: str, back: bool, arm: str = "", again: bool = False, to: str = "") -> None:
    """Promote an arm of a recipe or go back, and say what was done.

    Raises:
        PromotionRefused: the champion is kept.
    """
    moved, message = promote(recipe, back=back, arm=arm, again=again, to=to)
    if not moved:
        raise PromotionRefused(message)
    print(message)


@contextlib.contextmanager
def enter_folder(place: Path) -> Iterator[None]:
    """Work in a recipe's folder, with this folder's MLflow store."""
    before = dict(os.environ)
    os.environ.update(store_variables())
    try:
        with contextlib.chdir(place):
            yield
    finally:
        os.environ.clear()
        os.environ.update(before)
