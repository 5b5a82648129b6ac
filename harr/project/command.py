"""The command `harr`: `init` runs anywhere; all other commands are code of the project in the current folder."""

import argparse
import os
import sys
from importlib import import_module
from pathlib import Path

import harr
from harr.errors import HarrError
from harr.project.create import VERSION, create_project


def main() -> None:
    """Run `harr` with the command line's arguments."""
    if sys.argv[1:2] == ["init"]:
        _init(sys.argv[2:])
    elif Path("flows/cli.py").exists():
        sys.path.insert(0, os.getcwd())  # takes precedence over an editable install
        other = _describe_other_version()
        print(other, end="", file=sys.stderr)
        try:
            import_module("flows.cli").main()
        except ImportError as error:
            package = (error.name or "").partition(".")[0]
            if isinstance(error, ModuleNotFoundError) and package not in ("harr", "tasks", "flows"):
                sys.exit(f"error: package {package} is not installed; run `pip install 'harr[pipeline]'`")
            if not other:
                raise
            sys.exit(f"error: {error}")
    elif sys.argv[1:] in (["--help"], ["-h"]):
        print(
            "Usage: harr init [--update] DIR\n\nMake a project. In its folder `harr --help` lists all other commands."
        )
    else:
        sys.exit(
            f"error: no harr project in {Path().resolve()}; change to the folder of one, or make one: `harr init DIR`"
        )


def _init(words: list[str]) -> None:
    parser = argparse.ArgumentParser("harr init", description="Make a project: stages, flows, recipes and params.yaml.")
    parser.add_argument("folder", type=Path, metavar="DIR", help="a new folder, or an empty one")
    parser.add_argument("--update", action="store_true", help="give a project the code of the installed version")
    options = parser.parse_args(words)
    try:
        print(create_project(options.folder, update=options.update))
    except HarrError as error:
        sys.exit(f"error: {error}")
    except OSError as error:
        sys.exit(f"error: {error.filename}: cannot be written ({error.strerror}); name another folder")


def _describe_other_version() -> str:
    """Return a line if the project's code has another version than the installed library; otherwise ""."""
    note = Path(VERSION)
    version = note.read_text().strip() if note.exists() else harr.__version__
    if version == harr.__version__:
        return ""
    return f"this project is of harr {version}, and {harr.__version__} is installed; run `harr init --update .`\n"
