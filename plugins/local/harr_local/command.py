"""The commands `harr up`, `harr down` and `harr doctor`: their options; what they do is imported when they run."""

from typing import Annotated

from typer import Option

from tasks.runtime.command import run_command


def up(
    prefect_port: Annotated[int, Option(help="port of the Prefect server")] = 4200,
    mlflow_port: Annotated[int, Option(help="port of the MLflow server")] = 5000,
    serve_port: Annotated[int, Option(help="port of `harr serve`")] = 8002,
) -> None:
    """Start Prefect, its workers, MLflow and the champion."""

    def body() -> None:
        from harr_local.up import up

        up(prefect_port, mlflow_port, serve_port)

    run_command(body)


def down() -> None:
    """Stop what `harr up` started, with what runs there."""

    def body() -> None:
        from harr_local.up import down

        down()

    run_command(body)


def doctor(as_json: Annotated[bool, Option("--json", help="print one JSON object")] = False) -> None:
    """Check what a run needs, and name the fix of what is wrong.

    Packages, git, and every server that params.yaml names, with its key; exit 1 if something must be mended.
    """
    import os
    from dataclasses import asdict
    from pathlib import Path

    from flows.terminal import check_lines, show
    from harr_local.doctor import examine

    findings = examine(Path(), os.environ)
    count = {level: sum(finding.level == level for finding in findings) for level in ("ok", "warn", "fail")}
    lines = [*check_lines(findings), "{ok} ok, {warn} to look at, {fail} to mend".format_map(count)]
    answer = {"findings": [asdict(finding) for finding in findings]}
    show(answer, lines, as_json=as_json, code=int(count["fail"] > 0))
