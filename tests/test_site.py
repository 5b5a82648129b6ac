"""The site of docs/: it builds without a warning, asks no other machine for anything, and fits a screen and a phone.

The screenshots are kept in work/screenshots.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command

from flows.cli import app

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]
ROOT = Path(__file__).parents[1]
LOADED = re.compile(r"<(?:script|img|link)\b[^>]*?(?:src|href)=[\"']?(https?:)?//", re.IGNORECASE)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pages, built again; with --quiet mkdocs would count no warning."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    wrong = {page.name for page in site.glob("*.html") for tag in LOADED.finditer(page.read_text()) if tag}
    assert not wrong and len(list(site.glob("*.html"))) > 40


def test_the_reference_has_every_command_and_the_api(site: Path) -> None:
    commands, api = (site / "commands.html").read_text(), (site / "api.html").read_text()
    assert not [name for name in get_command(app).commands if f">harr {name}<" not in commands.replace("\n", "")]
    assert "harr.Retriever" in api and ":meth:" not in api and "DensePolicy" not in api
