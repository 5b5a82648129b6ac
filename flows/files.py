"""What `dvc repro` does first: see whether local files changed that section download names; `python -m flows.files`.

No stage of harr, since it makes nothing: no run in Prefect or MLflow tells of it.
"""

import sys
from pathlib import Path

from flows.runtime.command import call, run_command
from harr.io.digests import look
from harr.io.files import write_json
from harr.params import Params
from tasks.paths import FILES, STATE

MEMO = STATE / "files.json"


def seen(root: Path) -> dict[str, str]:
    """Return the SHA-256 of all local files that section download of a project names."""
    section = Params.load(root / "params.yaml").download.model_dump(mode="json")
    return look(section, root, root / MEMO)


def main() -> None:
    """Write down what the local files hold that section download names."""
    run_command(lambda: write_json(FILES, seen(Path())))


if __name__ == "__main__":
    call(main, "python -m flows.files", sys.argv[1:])
