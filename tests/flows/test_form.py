"""A deployment's form in Prefect, submitted in a browser: the chosen recipe becomes a parameter."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browsing import Page, browser, chromium
from harr_local.servers import healthy, prefect_command
from servers import Server, ask, server_of, until

pytestmark = pytest.mark.soak
ROOT = Path(__file__).parents[2]
REFUSED = "Something went wrong trying to create a flow run"
DEPLOY = """
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.utilities.callables import parameter_schema
from flows.pipeline import pipeline

with get_client(sync_client=True) as client:
    client.create_work_pool(WorkPoolCreate(name="cpu", type="process"))
    schema = parameter_schema(pipeline).model_dump_for_openapi()
    flow = client.create_flow(pipeline)
    print(client.create_deployment(flow, "on-demand", work_pool_name="cpu", parameter_openapi_schema=schema))
"""
"""What `harr up` does for prefect.yaml, for one deployment."""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Server]:
    """An empty Prefect server."""
    chromium()
    server = server_of(tmp_path, prefect_command, PREFECT_HOME=str(tmp_path / "prefect"))
    try:
        server.start()
        assert until(lambda: healthy(server.environment["PREFECT_API_URL"]))
        yield server
    finally:
        server.stop()


def runs(server: Server) -> list[dict[str, Any]]:
    """Return Prefect's flow runs."""
    return list(ask(f"{server.environment['PREFECT_API_URL']}/flow_runs/filter", {}))


def submitted(page: Page) -> bool:
    """Press Submit and return whether the page moves on to the deployment.

    While another writer locks SQLite, such as one of the server's own services, Prefect answers 503. Its clients retry;
    its page shows an error for a moment, and the person has to press again.
    """
    page.click("button", "^Submit$")
    page.wait(f"{REFUSED}|Upcoming")
    done = bool(re.search("Upcoming", page.text()))
    assert done or until(lambda: REFUSED not in page.text(), 60), "the page takes its notes away after a while"
    return done


def test_the_first_page_asks_nobody_else(site: Server, tmp_path: Path) -> None:
    (tmp_path / "profile").mkdir()
    with browser(tmp_path / "profile") as page:
        page.size(1400, 1000)
        page.open(f"http://127.0.0.1:{site.port}/", "Deployments", "Switch to V2 UI")
        script = "JSON.stringify(performance.getEntriesByType('resource').map(e => new URL(e.name).host))"
        assert {host for host in json.loads(page.run(script)) if host} == {f"127.0.0.1:{site.port}"}


def test_the_form_offers_the_recipes_and_starts_the_one_that_is_chosen(site: Server, tmp_path: Path) -> None:
    command = [sys.executable, "-c", DEPLOY]
    done = subprocess.run(command, cwd=ROOT, env=site.environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (tmp_path / "profile").mkdir()
    with browser(tmp_path / "profile") as page:
        page.size(1400, 1000)
        page.open(
            f"http://127.0.0.1:{site.port}/deployments/deployment/{done.stdout.strip()}/run",
            *("Run Name", "a file of recipes/", "make the candidate the champion", "Submit"),
        )
        page.click(".p-select-button__control", "params.yaml")
        page.press("ArrowDown", 40)  # it shows the first fifty, and more on scrolling
        page.wait("agent_small", "harr_grpo", "own_data")
        page.write("own_data")
        page.click(".p-select-option", "^own_data$")
        page.picture(ROOT / "work/screenshots/prefect-form.png")
        assert not runs(site)
        assert until(lambda: submitted(page), 120)
        page.wait("Next Run", "3 Parameters")
    (run,) = runs(site)
    assert run["parameters"] == {"recipe": "own_data", "promote": False, "agents": None}
    assert run["state_type"] == "SCHEDULED"
