"""What a run shows in Prefect: how far it is, the arms, and where MLflow, the checks and the report are."""

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from prefect.artifacts import create_markdown_artifact, create_progress_artifact, update_progress_artifact
from prefect.runtime import flow_run

from harr.errors import bare
from harr.params import Params
from tasks.expectations.process import data_docs, words_of
from tasks.paths import METRICS, REPORT


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


def show_results(params: Params, servers: Mapping[str, str], verdict: str) -> None:
    """Write the run's artifact ``results``: the verdict of the promotion gate, the arms, and the links.

    Args:
        params: those of the run, in whose folder this is called.
        servers: addresses of what `harr up` started, by name.
        verdict: that of the gate, or "".
    """
    if flow_run.id:
        parts = [_verdict(verdict) if verdict else "", _arms(), _links(params, servers)]
        said = verdict.partition("\n")[0] or "what the arms reached, and where to look"
        create_markdown_artifact("\n\n".join(part for part in parts if part), key="results", description=said)


def _verdict(text: str) -> str:
    """Return the gate's text with its conditions as a list: it separates them by line ends or semicolons."""
    head, *more = re.split(r"\n|; ", text)
    return "\n".join([f"## Promotion\n**{head}**\n", *(f"- {line}" for line in more if line.strip())])


def _arms() -> str:
    """Return what the last evaluation means, and its arms as tables."""
    from tasks.evaluation_outputs import show, summary_here
    from tasks.headline import headline_words

    if not (METRICS / "evaluate.json").exists():
        return ""
    return f"{headline_words(summary_here())}\n\n## Arms\n{show(markdown=True)}".lstrip()


def _links(params: Params, servers: Mapping[str, str]) -> str:
    """Return a link to the run in MLflow, and where the pages lie."""
    pages = {"Report": REPORT} if REPORT.exists() else {}
    pages |= {f"Checks of {words_of(suite)}": Path(page) for suite, page in data_docs().items()}
    lines = [f"- {name}: `{page.resolve()}`" for name, page in pages.items()]
    with contextlib.suppress(OSError, LookupError):
        lines.insert(0, f"- [Run in MLflow]({_mlflow_page(params, params.tracking.uri or servers.get('MLflow', ''))})")
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
        filter_string = f"tags.`harr.execution` = '{flow_run.id}'"
        runs = client.search_runs([experiment.experiment_id], filter_string, max_results=1)
    return f"{bare(server).rstrip('/')}/#/experiments/{experiment.experiment_id}/runs/{runs[0].info.run_id}"
