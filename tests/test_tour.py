"""examples/tour.py: read top to bottom, it ends with a served model that was swapped."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TOUR = Path(__file__).parents[1] / "examples/tour.py"


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_the_tour_ends_with_the_second_model(tmp_path: Path) -> None:
    gone = ("PREFECT", "HARR", "MLFLOW_TRACKING")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(gone)}
    path = os.pathsep.join([str(Path(sys.executable).parent), kept["PATH"]])
    own = {"PATH": path, "PYTHONPATH": str(TOUR.parents[1])}
    done = subprocess.run(
        [sys.executable, str(TOUR)], cwd=tmp_path, env=kept | own, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    output = done.stdout
    assert re.search(r"^trained +\d", output, re.MULTILINE), "the table of the arms"
    assert "version 1 of models:/tour@champion" in output and "now version 2 answers" in output
    assert (tmp_path / "tour/reports/index.html").exists()
