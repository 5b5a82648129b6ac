"""What a run shows in Prefect: how far it is, the arms, and where MLflow, the checks and the report are."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from prefect.artifacts import create_markdown_artifact, create_progress_artifact, update_progress_artifact
from prefect.runtime import flow_run

from harr.errors import bare
from harr.params import Params
from tasks.paths import CHECKS, METRICS, REPORT


def with_progress(stages: Sequence[str]) -> Iterator[str]:
    """Yield the stages; a bar in Prefect says how many are done and which one is next."""
    if not flow_run.id:
        yield from stages
        return
    artifact: Any = create_progress_artifact(0.0, key="pipeline-progress", description=f"{stages[0]} is in work")
    for number, stage in enumerate(stages, start=1):
        yield stage
        message = f"{stage} is done; then comes {stages[number]}" if number < len(stages) else "all stages are done"
        update_progress_artifact(artifact, progress=100.0 * number / len(stages), description=message)


def show_results(params: Params, server: str, verdict: str) -> None:
    """Write the run's artifact ``results``: what the promotion gate said, the arms, and the links.

    ``server``: address of this machine's MLflow server, or "".
    """
    if flow_run.id:
        parts = [f"## Promotion\n```\n{verdict}\n```" if verdict else "", _arms(), _links(params, server)]
        create_markdown_artifact("\n\n".join(part for part in parts if part), key="results")


def _arms() -> str:
    """Return the arms table of the last evaluation."""
    from tasks.evaluate import show

    return f"## Arms\n```\n{show()}\n```" if (METRICS / "evaluate.json").exists() else ""


def _links(params: Params, server: str) -> str:
    """Return pages on this machine (a browser opens them by their path, not from another page), and the run in
    MLflow."""
    pages = {"Report": REPORT} if REPORT.exists() else {}
    for suite in sorted(CHECKS.glob("*")):  # the index of the Data Docs is blank without a network
        pages[f"Checks of {suite.name}"] = max(suite.glob("**/*.html"), default=suite)
    lines = [f"- {name}: `{page.resolve()}`" for name, page in pages.items()]
    with contextlib.suppress(OSError, LookupError):
        lines.insert(0, f"- MLflow: <{_mlflow_page(params, params.tracking.uri or server)}>")
    return "\n".join(["## Where to look", *lines])


def _mlflow_page(params: Params, server: str) -> str:
    """Return the address of this execution's parent run.

    Raises:
        LookupError: no MLflow server or no run is known.
        ServiceUnavailable: the server does not answer.
    """
    from tasks.tracking.client import open_client
    from tasks.tracking.errors import service

    if not server:
        raise LookupError("no MLflow server")
    with service():  # one that is away costs the run its link, and nothing else
        client = open_client(params)
        experiment = client.get_experiment_by_name(params.tracking.experiment)
        if not experiment:
            raise LookupError("nothing was reported to it yet")
        named = f"tags.`harr.execution` = '{flow_run.id}'"
        found = client.search_runs([experiment.experiment_id], named, max_results=1)
    return f"{bare(server).rstrip('/')}/#/experiments/{experiment.experiment_id}/runs/{found[0].info.run_id}"
