"""`harr init`: copy a project's files into a folder, from the wheel or, in the repository, from its root."""

import shlex
import shutil
from pathlib import Path

import harr
from harr.errors import ParamsError
from harr.io.files import write_text

SETTINGS = (".dvc/config", ".dvcignore", ".gitignore", "params.yaml", "prefect.yaml")
"""What users edit; an update leaves it alone."""
CODE = tuple(".dvc/.gitignore AGENTS.md constraints.txt dvc.yaml flows params.schema.json recipes tasks".split())
"""What belongs to a harr version."""
PACKED = Path(__file__).with_name("files")
"""Where the wheel contains both (pyproject.toml, `force-include`)."""
VERSION = ".harr-version"
"""File that notes the version of the project's code."""

BEGIN_GIT = "git init && dvc config --local --unset core.no_scm"
"""Commands after which DVC uses git in a project made outside a repository."""


def create_project(folder: Path, *, update: bool = False) -> str:
    """Make a project in ``folder``, or with ``update`` give it the installed version's code.

    An update replaces flows, tasks and dvc.yaml, and adds recipes; settings and results are kept.

    Returns:
        What to do next.

    Raises:
        ParamsError: the folder already has a project's file, or with ``update`` is not a project of ``harr init``.
    """
    root = PACKED if PACKED.exists() else Path(__file__).parents[2]
    there = [name for name in (*SETTINGS, *CODE) if (folder / name).exists()]
    if there and not update:
        older = f", or `harr init --update {folder}` for the installed version" if (folder / VERSION).exists() else ""
        raise ParamsError(f"{folder} holds {there[0]} already; name a new folder{older}")
    if update and not (folder / VERSION).exists():
        raise ParamsError(f"{folder} is no project that harr init made (no {VERSION}); `harr init DIR` makes one")
    for name in CODE + tuple(name for name in SETTINGS if name not in there):
        _copy(root / name, folder / name)
    write_text(folder / VERSION, f"{harr.__version__}\n")
    git = ""
    if not any((place / ".git").exists() for place in (folder.resolve(), *folder.resolve().parents)):
        if not (folder / ".dvc/config.local").exists():  # a user keeps keys of remotes there
            write_text(folder / ".dvc/config.local", "[core]\n    no_scm = true\n")
        git = f"  {BEGIN_GIT}    # for `dvc exp run`, now or later\n"
    if update:
        return f"{folder} has the code of harr {harr.__version__}; params.yaml, prefect.yaml and results are as before"
    return (
        f"made a project in {folder.resolve()}\n"
        f"  cd {shlex.quote(str(folder))}\n{git}"
        "  pip install --constraint constraints.txt 'harr[pipeline,encyclopaedia,local]'\n"
        "  harr run --recipe smoke    # two minutes: is everything wired?\n"
        "  harr run                   # params.yaml, as it stands"
    )


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if not source.is_dir():
        shutil.copyfile(source, target)
        return
    if target.exists() and target.name != "recipes":  # the user's own recipes are kept
        target.unlink() if target.is_symlink() else shutil.rmtree(target)
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
