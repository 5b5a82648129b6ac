"""The site of docs/: it builds without warnings, sends no requests elsewhere, and fits a screen and a phone.

The screenshots are kept in work/screenshots.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image
from typer.main import get_command

from flows.cli import app

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]
ROOT = Path(__file__).parents[1]
SHOTS = ROOT / "work/screenshots"
SIZES = {"screen": (1400, 1000), "phone": (390, 844)}
LOADED = re.compile(r"<(?:script|img|link)\b[^>]*?(?:src|href)=[\"']?(https?:)?//", re.IGNORECASE)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pages, rebuilt; with --quiet mkdocs would count no warnings."""
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


def test_pages_are_seen_on_a_screen_and_a_phone(site: Path) -> None:
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if not browser:
        pytest.skip("no browser here: chromium was not found (Debian: apt install chromium)")
    SHOTS.mkdir(parents=True, exist_ok=True)
    for page in ("index", "grpo", "parameters"):
        for name, (width, height) in SIZES.items():
            shot = SHOTS / f"docs_{page}_{name}.png"
            flags = ["--headless=new", "--no-sandbox", "--disable-gpu", f"--window-size={width},{height}"]
            url = (site / f"{page}.html").as_uri()
            subprocess.run([browser, *flags, f"--screenshot={shot}", url], check=True, capture_output=True, timeout=120)
            with Image.open(shot) as picture:
                assert len(picture.convert("L").getcolors() or range(256)) > 20  # text, not an empty page
