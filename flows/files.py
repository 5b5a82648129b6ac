"""What `dvc repro` does first: see whether local files changed that section download names; `python -m flows.files`.

No stage of harr, since it makes nothing: no run in Prefect or MLflow tells of it.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flows.runtime.command import call, run_command
from harr.errors import ParamsError
from harr.io.digests import look
from harr.io.files import write_json
from harr.io.yaml_file import read_yaml
from harr.params import Params
from tasks.paths import FILES, STATE

MEMO = STATE / "files.json"


def seen(root: Path) -> dict[str, str]:
    """Return the SHA-256 of all local files that section download of a project names."""
    section = Params.load(root / "params.yaml").download.model_dump(mode="json")
    return look(section, root, root / MEMO)


def unnamed(values: Mapping[str, Any], stages: Mapping[str, Any]) -> list[str]:
    """Return the parameters that stages of dvc.yaml name and params.yaml does not.

    >>> unnamed({"seed": 0, "evaluate": {}}, {"arms": {"params": ["seed", "evaluate.seeds"]}, "files": {}})
    ['evaluate.seeds']
    """
    told = (name for stage in stages.values() for name in stage.get("params", ()))
    named = dict.fromkeys(name for name in told if isinstance(name, str))  # a mapping names another file
    return [name for name in named if not _stands(values, name.split("."))]


def _stands(values: Any, parts: Sequence[str]) -> bool:
    return not parts or (isinstance(values, Mapping) and parts[0] in values and _stands(values[parts[0]], parts[1:]))


def check_named() -> None:
    """Refuse what DVC would refuse hours later, at the stage that reads it.

    Raises:
        ParamsError: params.yaml leaves out a parameter that dvc.yaml names.
    """
    stages = read_yaml(Path("dvc.yaml"), mend="restore it")["stages"] if Path("dvc.yaml").exists() else {}
    if missing := unnamed(read_yaml(Path("params.yaml"), mend="run this in the project's folder"), stages):
        raise ParamsError(
            f"params.yaml: {', '.join(missing)} left out, which dvc.yaml names; write it down, with its default "
            f"if you like (docs/parameters.md)"
        )


def _look() -> None:
    check_named()
    write_json(FILES, seen(Path()))


def main() -> None:
    """Write down what the local files hold that section download names."""
    run_command(_look)


if __name__ == "__main__":
    call(main, "python -m flows.files", sys.argv[1:])
