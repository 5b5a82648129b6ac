"""The commands `harr up`, `harr down`, `harr doctor` and `harr ask`: their options. Imports wait until they run."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from tasks.runtime.command import run_command

AsJson = Annotated[bool, Option("--json", help="print one JSON object")]


def up(
    prefect_port: Annotated[int, Option(help="port of the Prefect server", min=1, max=65535)] = 4200,
    mlflow_port: Annotated[int, Option(help="port of the MLflow server", min=1, max=65535)] = 5000,
    serve_port: Annotated[int, Option(help="port of `harr serve`", min=1, max=65535)] = 8002,
) -> None:
    """Start Prefect, its workers, MLflow and the champion."""

    def body() -> None:
        from harr_local.up import up

        up(prefect_port, mlflow_port, serve_port)

    run_command(body)


def down() -> None:
    """Stop what `harr up` started, and everything running there."""

    def body() -> None:
        from harr_local.up import down

        down()

    run_command(body)


def ask(
    question: Annotated[str, Argument(metavar="QUESTION", help="the question, in quotation marks")],
    model: Annotated[
        Path | None,
        Option(help="adapter or merged model of what learns (default: models/language_model or models/retriever)"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Answer a question by the pipeline of params.yaml.

    Prints every search with its passages, then the answer. Needs the output of stages embed and index.
    """

    def body() -> None:
        import json

        from harr.params import Params
        from harr_local import ask as asked

        episode = asked.ask(Params.load(), question, model)
        answer = asked.as_json(episode)
        print(json.dumps(answer, indent=2, ensure_ascii=False) if as_json else "\n".join(asked.lines(episode)))

    run_command(body)


def doctor(as_json: AsJson = False) -> None:
    """Check what a run needs, and name a fix for every problem.

    Packages, git, and every server that params.yaml names, with its key; exits with 1 if something must be fixed.
    """
    import os
    from dataclasses import asdict

    from flows.terminal import check_lines, show
    from harr_local.doctor import examine

    findings = examine(Path(), os.environ)
    count = {level: sum(finding.level == level for finding in findings) for level in ("ok", "warn", "fail")}
    lines = [*check_lines(findings), "{ok} ok, {warn} to look at, {fail} to mend".format_map(count)]
    answer = {"findings": [asdict(finding) for finding in findings]}
    show(answer, lines, as_json=as_json, code=int(count["fail"] > 0))
