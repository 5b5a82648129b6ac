"""What a person sees of a finished run, in a browser without a network: Prefect, MLflow, gate, report, Data Docs.

The run is that of recipes/smoke.yaml in the folder HARR_FINISHED_RUN, where nothing may be running, or is made here
from the smoke recipe, which takes minutes. Prefect's flow of all stages then finds nothing to do. The screenshots are
kept in work/screenshots.
"""

import html
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from browsing import Page, browser, chromium
from harr_local.servers import healthy, mlflow_command, prefect_command
from PIL import Image
from servers import ask, server_of, until

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]
ROOT = Path(__file__).parents[2]
SHOTS = ROOT / "work/screenshots"
ARMS = ("bm25", "frozen", "trained")
WIDTH, HEIGHT = 1400, 1000
PHONE = 390, 844
Pages = dict[str, tuple[str, tuple[str, ...]]]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run."""
    chromium()
    if named := os.environ.get("HARR_FINISHED_RUN"):
        return Path(named).resolve()
    folder = tmp_path_factory.mktemp("finished")
    for name in ("harr", "tasks", "flows", "recipes"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "dvc.yaml", folder)
    shutil.copy(ROOT / "recipes/smoke.yaml", folder / "params.yaml")
    subprocess.run([sys.executable, "-m", "dvc", "init", "--no-scm", "--quiet"], cwd=folder, check=True)
    gone = ("PREFECT", "HARR", "MLFLOW_TRACKING", "PYTHONPATH")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(gone)}
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment["PATH"]])
    with (folder / "pipeline.log").open("w") as out:
        command = [sys.executable, "-m", "flows.cli", "run", "--promote"]
        done = subprocess.run(command, cwd=folder, env=environment, stdout=out, stderr=out, timeout=1700, check=False)
    said = (folder / "pipeline.log").read_text()
    assert done.returncode == 0, said[-4000:]
    assert "harr promote" in said.rpartition("next:")[2], "it ends with the table and what to do"
    return folder


@pytest.fixture(scope="module")
def sites(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Prefect and MLflow on the run's history, started as `harr up` starts them."""
    servers = {}
    for name, make in (("prefect", prefect_command), ("mlflow", mlflow_command)):
        servers[name] = server_of(finished, make, PREFECT_HOME=str(finished / ".harr/prefect"))
        servers[name].log = tmp_path_factory.mktemp(name) / "log"
    try:
        for server in servers.values():
            server.start()
        found = {name: f"http://127.0.0.1:{server.port}" for name, server in servers.items()}
        assert until(lambda: healthy(f"{found['prefect']}/api"))
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        own = {
            "PREFECT_API_URL": f"{found['prefect']}/api",
            "PREFECT_HOME": str(finished / ".harr/prefect"),
            "PATH": path,
        }
        command = [sys.executable, "-c", "from flows.pipeline import pipeline; pipeline()"]
        subprocess.run(command, cwd=finished, env={**os.environ, **own, "PYTHONPATH": str(finished)}, check=True)
        yield found
    finally:
        for server in servers.values():
            if server.process:
                server.signal(signal.SIGTERM)
                until(lambda server=server: server.process.poll() is not None, 20)
            server.stop()


def prefect_pages(site: str) -> Pages:
    """Return the page of the last pipeline run."""
    named = {"flows": {"name": {"any_": ["pipeline"]}}, "sort": "START_TIME_DESC", "limit": 1}
    (run,) = ask(f"{site}/api/flow_runs/filter", named)
    return {
        "prefect-run": (
            f"{site}/runs/flow-run/{run['id']}",
            (run["name"], "pipeline", "Completed", "train", "evaluate"),
        ),
    }


def mlflow_pages(site: str) -> Pages:
    """Return the pages of the evaluation's figures and of the promotion's verdict."""
    from mlflow import MlflowClient

    client = MlflowClient(site)
    experiment = client.get_experiment_by_name("harr").experiment_id
    (run, *_) = client.search_runs([experiment], "tags.`harr.stage` = 'evaluate'", max_results=1)
    model = client.get_registered_model("harr-smoke").name
    version = max(client.search_model_versions(f"name = '{model}'"), key=lambda found: int(found.version))
    gate = client.download_artifacts(version.run_id, "promotion.html")
    runs = f"{site}/#/experiments/{experiment}/runs"
    return {
        "mlflow-version": (
            f"{site}/#/models/{model}/versions/{version.version}",
            (model, "harr.Retriever.load", "arm"),
        ),
        "mlflow-run": (f"{runs}/{run.info.run_id}", ("evaluate", "trained/answer_f1", "frozen/answer_f1")),
        "mlflow-promotion": (f"{runs}/{version.run_id}/artifacts/promotion.html", ("promotion.html", "lineage")),
        "promotion": (Path(gate).resolve().as_uri(), (model, "conditions", "verdict", "frozen", "expectations")),
    }


@pytest.fixture(scope="module")
def pages(finished: Path, sites: dict[str, str]) -> Pages:
    """Name of a page -> its address and the words it must show."""
    docs = finished / "gx/uncommitted/data_docs/local_site"
    checks = max((docs / "validations/evaluation").rglob("*.html"), key=lambda path: path.stat().st_mtime)
    own = {
        "report": ((finished / "reports/index.html").as_uri(), (*ARMS, "Arms", "Questions", "Checks of evaluation")),
        "data-docs": (checks.as_uri(), ("evaluation", "Status: Succeeded", "answer_f1", "recall")),
    }
    return prefect_pages(sites["prefect"]) | mlflow_pages(sites["mlflow"]) | own


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """The browser's only tab."""
    with browser(tmp_path_factory.mktemp("browser")) as page:
        yield page


def dom(page: Page) -> str:
    """Return every word of the page, including folded-away ones."""
    whole = str(page.run("document.documentElement.outerHTML"))
    whole = re.sub(r"<(script|style)\b.*?</\1>", " ", whole, flags=re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", whole)).split())


def test_every_page_shows_the_run(pages: Pages, tab: Page) -> None:
    tab.size(WIDTH, HEIGHT)
    for name, (address, words) in pages.items():
        tab.open(address)
        shown = until(lambda words=words: all(word in dom(tab) for word in words), 60)
        assert shown, f"{words} not all on {address}, where stands: {dom(tab)[:3000]}"
        shot = SHOTS / f"{name}.png"
        drawn = until(lambda shot=shot: not blank(tab, shot), 20)
        assert drawn, f"{name} is nearly blank"


def blank(page: Page, shot: Path) -> bool:
    page.picture(shot)
    with Image.open(shot) as image:
        assert image.size == (WIDTH, HEIGHT)
        colours = image.convert("RGB").getcolors(WIDTH * HEIGHT)
    return len(colours) <= 30 or max(count for count, _ in colours) >= 0.985 * WIDTH * HEIGHT


def test_ours_fit_the_width_of_a_phone(pages: Pages, tab: Page) -> None:
    tab.size(*PHONE)
    for name in ("promotion", "report"):
        tab.open(pages[name][0], re.escape(pages[name][1][0]))
        tab.picture(SHOTS / f"{name}-phone.png")
        assert tab.run("document.documentElement.scrollWidth") <= PHONE[0], name
