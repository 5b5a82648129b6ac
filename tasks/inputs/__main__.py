"""First step of `dvc repro`, `python -m tasks.inputs`: write data/inputs/<stage>.json, and say why a stage is stale."""

import contextlib
import sys
from pathlib import Path

from harr.errors import HarrError, printable
from harr.io.digests import look
from harr.io.files import read_json, write_json
from harr.params import Params
from tasks.inputs.differences import explain_stale
from tasks.inputs.stages import all_inputs
from tasks.paths import INPUTS, STATE

FILES = STATE / "files.json"


def main() -> None:
    """Write the inputs that changed."""
    params = Params.load()
    now = all_inputs(params, look(params.download.model_dump(mode="json"), Path(), FILES))
    for stage, reasons in explain_stale(now, Path()).items():
        for reason in reasons:
            print(f"{stage} is stale: {reason}")
    for stage, inputs in now.items():
        path = INPUTS / f"{stage}.json"
        with contextlib.suppress(FileNotFoundError, ValueError):
            if read_json(path) == inputs:
                continue
        write_json(path, inputs)


if __name__ == "__main__":
    try:
        main()
    except HarrError as error:
        sys.exit(f"error: {printable(str(error))}")
    except OSError as error:
        sys.exit(f"error: {error.filename or Path()}: {error.strerror}; nothing was run")
