"""The folder in which a recipe runs, so that params.yaml and its results stay as they are.

.harr/runs/<recipe> contains a copy of the code, the recipe as params.yaml, and its own data, models and metrics. DVC's
cache and MLflow's store are shared with the tree that it was made from, so nothing is computed twice.
"""

import configparser
import contextlib
import filecmp
import io
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from harr.errors import ParamsError
from harr.io.files import write_text
from harr.params import Params
from harr.services.mlflow_store import ARTIFACTS, DATABASE, FILES, database_of
from tasks.inputs.differences import cache_folder
from tasks.paths import RUNS
from tasks.runtime import locks

RECIPES = Path("recipes")
AS_IT_STANDS = "params.yaml"
"""Recipe name for this folder and its params.yaml, as they are."""
CODE = ("harr", "tasks", "flows", "dvc.yaml", ".dvcignore")
"""A project made by `harr init` has no harr."""
OWN = {"data", "models", "metrics", "plots", "dvc_plots", "reports", "work", "gx", "mlruns", "mlflow.db", "dvc.lock"}
"""What a run writes; everything else that is not code (say, a folder with one's own corpus) is linked."""


def recipe_names() -> tuple[str, ...]:
    """Return params.yaml and the names of recipes/*.yaml."""
    return (AS_IT_STANDS, *sorted(path.stem for path in RECIPES.glob("*.yaml")))


def resolve_recipe(recipe: str) -> tuple[Path, Params]:
    """Return the folder of a recipe, which may not exist yet, and its parameters.

    Raises:
        ParamsError: there is no such recipe, or it is wrong.
    """
    if recipe in ("", AS_IT_STANDS):
        return Path(), Params.load()
    source = RECIPES / f"{recipe}.yaml"
    if Path(recipe).name != recipe or not source.exists():
        raise ParamsError(f"no recipe {recipe!r}; there are: {', '.join(recipe_names()[1:])}")
    return RUNS / recipe, Params.load(source)


@contextlib.contextmanager
def workspace(recipe: str) -> Iterator[Path]:
    """Yield the folder of a recipe for this run alone: a second one waits. The lock ends with the process.

    The folder is made or updated when the previous run has ended, which thus keeps what it began with.

    Raises:
        ParamsError: there is no such recipe, or it is wrong.
    """
    place, _ = resolve_recipe(recipe)

    def busy(owner: str) -> None:
        print(f"another run works in {place.resolve()}, {owner}; this one waits for its end", flush=True)

    with locks.hold(place / locks.LOCKS / "run", busy):
        if place != Path():
            _bring_up_to_date(place, RECIPES / f"{recipe}.yaml")
        yield place


def _bring_up_to_date(place: Path, source: Path) -> None:
    for name in CODE:
        _mirror(Path(name), place / name)
    _mirror(source, place / AS_IT_STANDS)
    for entry in Path().iterdir():
        link, private = place / entry.name, entry.name.startswith((".", "mlflow.db")) or entry.name in OWN
        if private:
            continue
        if link.is_symlink() and link.readlink() != entry.resolve():  # of the place that the project was copied from
            link.unlink()
        if not (link.exists() or link.is_symlink()):
            link.symlink_to(entry.resolve())
    _share_cache(place)


def store_variables() -> dict[str, str]:
    """Return variables that make a process in another folder keep its runs in this folder's mlflow.db and mlruns."""
    here = Path().resolve()
    address = os.environ.get("MLFLOW_TRACKING_URI", f"sqlite:///{DATABASE}")
    if database := database_of(address):
        address = f"sqlite:///{here / database}"
    return {"MLFLOW_TRACKING_URI": address, ARTIFACTS: os.environ.get(ARTIFACTS, f"{here}/{FILES}")}


def _mirror(source: Path, target: Path) -> None:
    """Make ``target`` a copy of a file or folder; what is already the same is not touched."""
    if not source.is_dir():
        if source.exists() and not (target.exists() and filecmp.cmp(source, target, shallow=False)):
            shutil.copyfile(source, target)
        return
    target.mkdir(exist_ok=True)
    names = {path.name for path in source.iterdir() if path.name != "__pycache__"}
    for gone in {path.name for path in target.iterdir()} - names - {"__pycache__"}:
        path = target / gone
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    for name in names:
        _mirror(source / name, target / name)


def _share_cache(place: Path) -> None:
    """Configure DVC in ``place`` without git (the folder is ignored) and with this folder's cache."""
    config = configparser.ConfigParser(interpolation=None)  # a path may have a %
    config.read([".dvc/config", ".dvc/config.local"])
    for section in ("core", "cache"):
        if not config.has_section(section):
            config.add_section(section)
    config["core"]["no_scm"] = "true"
    config["cache"]["dir"] = str(cache_folder(Path()).resolve())
    for remote in (config[name] for name in config.sections() if "remote" in name):
        if "://" not in remote.get("url", "://"):  # relative to the folder of DVC's config file
            remote["url"] = str((Path(".dvc") / remote["url"]).resolve())
    with io.StringIO() as text:
        config.write(text)
        write_text(place / ".dvc/config", text.getvalue())
