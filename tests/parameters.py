"""The smoke recipe with changes, read from a file."""

from pathlib import Path
from typing import Any

import yaml

from harr.params import Params

ROOT = Path(__file__).parents[1]


GOOD = yaml.safe_load((ROOT / "recipes/smoke.yaml").read_text())


def load(values: Any, folder: Path) -> Params:
    path = folder / "params.yaml"
    path.write_text(values if isinstance(values, str) else yaml.safe_dump(values))
    return Params.load(path)


SERVER = {"kind": "server", "model": "m", "server": {"urls": ["http://127.0.0.1:8000/v1"]}}
