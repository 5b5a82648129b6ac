"""`harr init`: a folder gets the files of a project, which the wheel carries; in the repository they are its own."""

import shutil
from pathlib import Path

import harr
from harr.errors import ParamsError
from harr.io.files import write_text

SETTINGS = (".dvc/config", ".dvcignore", ".gitignore", "params.yaml", "prefect.yaml")
"""What a person edits; an update leaves it alone."""
CODE = tuple(".dvc/.gitignore AGENTS.md constraints.txt dvc.yaml flows params.schema.json recipes tasks".split())
"""What belongs to a version of harr."""
PACKED = Path(__file__).with_name("files")
"""Where the wheel has both (pyproject.toml, `force-include`)."""
VERSION = ".harr-version"
"""The project's note of which version its code is of."""

BEGIN_GIT = "git init && dvc config --local --unset core.no_scm"
"""Commands after which DVC works with git in a project that was made outside of a repository."""


def create_project(folder: Path, *, update: bool = False) -> str:
    """Make a project in ``folder``, or with ``update`` give one the code of the installed version.

    An update replaces flows, tasks and dvc.yaml, and adds recipes; settings and results stay.

    Returns:
        What to do next.

    Raises:
        ParamsError: the folder holds a file of a project already, or with ``update`` holds none.
    """
    root = PACKED if PACKED.exists() else Path(__file__).parents[2]
    there = [name for name in (*SETTINGS, *CODE) if (folder / name).exists()]
    if there and not update:
        raise ParamsError(
            f"{folder} holds {there[0]} already; name a new folder, or `harr init --update {folder}` for a project of "
            "an older version"
        )
    if update and not (folder / VERSION).exists():
        raise ParamsError(f"{folder} is no project that harr init made (no {VERSION}); run `harr init {folder}`")
    for name in CODE + tuple(name for name in SETTINGS if name not in there):
        _copy(root / name, folder / name)
    write_text(folder / VERSION, f"{harr.__version__}\n")
    git = ""
    if not any((place / ".git").exists() for place in (folder.resolve(), *folder.resolve().parents)):
        write_text(folder / ".dvc/config.local", "[core]\n    no_scm = true\n")
        git = f"  {BEGIN_GIT}    # for `dvc exp run`, now or later\n"
    if update:
        return f"{folder} has the code of harr {harr.__version__}; params.yaml, prefect.yaml and results are as before"
    return (
        f"made a project in {folder.resolve()}\n"
        f"  cd {folder}\n{git}"
        "  pip install --constraint constraints.txt 'harr[pipeline,encyclopaedia,local]'\n"
        "  harr run --recipe smoke    # two minutes: is everything wired?\n"
        "  harr run                   # params.yaml, as it stands"
    )


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if not source.is_dir():
        shutil.copyfile(source, target)
        return
    if target.exists() and target.name != "recipes":  # whose own files stay
        shutil.rmtree(target)
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
