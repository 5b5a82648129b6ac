"""The command `harr`, or `python -m flows.cli`: all that a person does in a project's folder.

A command imports what it needs when it runs, so that help appears at once.
"""

import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import entry_points, metadata
from pathlib import Path
from typing import Annotated, Literal

from typer import Argument, Option, Typer

from flows.command import PLAIN, call
from harr.errors import CorpusError, ParamsError, one_line
from tasks.runtime.command import run_command
from tasks.runtime.errors import errors_in_a_line

RECIPE = "a file in recipes/, without .yaml, which runs in .harr/runs/RECIPE; or params.yaml, in this folder"
Recipe = Annotated[str, Option(help=RECIPE)]
LOCAL = ("up", "down", "doctor", "ask")
"""Commands of the extra `local`; other extras that a message names have the name of their command."""
AsJson = Annotated[bool, Option("--json", help="print one JSON object")]

app = Typer(
    help="Train the retriever of a RAG pipeline, from corpus to promoted model. `harr init DIR` makes a project.",
    no_args_is_help=True,
    **PLAIN,
)


@app.command()
def run(
    recipe: Recipe = "params.yaml",
    promote: Annotated[bool, Option("--promote", help="promote the model at the end, if the interval allows")] = False,
    again: Annotated[bool, Option("--again", help="train on the corpus of today, however little it changed")] = False,
) -> None:
    """Bring every stage up to date."""
    from flows.run import run_recipe

    run_command(lambda: run_recipe(recipe, promote, again))


@app.command()
def evaluate(
    questions: Annotated[Path, Option(help="question file (README: Your own data)")],
    out: Annotated[Path, Option(help="where the metrics go, in the shape of metrics/evaluate.json")],
    model: Annotated[
        Path | None, Option(help="adapter or merged model of the arm trained (default: models/adapter)")
    ] = None,
    arms: Annotated[list[str] | None, Option(metavar="ARM ...", help="which arms (default: evaluate.arms)")] = None,
) -> None:
    """Play any model on the questions of a file."""
    from harr.params import Params
    from tasks.evaluate import evaluate_file

    run_command(lambda: evaluate_file(Params.load(), questions, out, model, arms or ()))


@app.command()
def promote(
    recipe: Recipe = "params.yaml",
    arm: Annotated[
        str, Option(metavar="NAME", help="an arm of evaluate.arms (default: the best of the evaluation)")
    ] = "",
    re_evaluate: Annotated[
        bool, Option("--re-evaluate", help="play the champion again, on the candidate's corpus and questions")
    ] = False,
) -> None:
    """Make the best arm the champion, if the gate allows it.

    The paired interval of their difference must lie above 0. An untrained arm needs only the index, which is made. A
    champion that played on another corpus or other questions is played again on the candidate's.
    """
    from flows.run import run_promotion

    run_command(lambda: run_promotion(recipe, back=False, arm=arm, again=re_evaluate))


@app.command()
def pull(
    model: Annotated[str, Argument(metavar="URI", help="models:/NAME@ALIAS or models:/NAME/NUMBER")],
    out: Annotated[Path, Argument(metavar="DIR", help="folder of the model, which appears whole")],
) -> None:
    """Download a registered model and compare every hash.

    The registry is that of params.yaml here, or of MLFLOW_TRACKING_URI.
    """
    from tasks.registry.pull import pull

    run_command(lambda: print(pull(model, out)))


@app.command()
def rollback(
    recipe: Recipe = "params.yaml",
    to: Annotated[str, Option(metavar="N", help="a version that was champion before (default: the one before)")] = "",
) -> None:
    """Make the previous champion, or an older one, the champion."""
    from flows.run import run_promotion

    run_command(lambda: run_promotion(recipe, back=True, to=to))


@app.command()
def preview(
    split: Annotated[
        Literal["train", "validation", "test", "passages"], Option(help="passages: their ids and titles, a line each")
    ] = "train",
    examples: Annotated[int, Option(min=0, metavar="N", help="show the first N questions")] = 3,
    export: Annotated[Path | None, Option(metavar="FILE", help="also write the questions as JSON lines")] = None,
    as_json: AsJson = False,
) -> None:
    """Check questions, gold passages and reward beforehand.

    Shows the questions of a split that section download describes.
    Exits with 1 if something must be fixed.
    """
    from flows.checks import checks
    from flows.terminal import check_lines, preview_lines, show
    from harr.corpus.passages import write_questions
    from harr.datasets.preview import preview, read_data, read_passages
    from harr.params import Params

    if export and export.exists():
        raise CorpusError(f"{export} exists and is left as it is; name another file")
    params = Params.load()
    if split == "passages":
        for passage in read_passages(params.download):
            print(passage.id, passage.title, sep="  ")
        return
    data = read_data(params.download)
    questions, left_out = data.splits.of(split)
    if export:
        try:
            write_questions(questions, export)
        except OSError as error:
            raise CorpusError(f"{export}: cannot be written ({error.strerror}); name another file") from None
    page = preview(params.download, split, questions, left_out, examples)
    findings = checks(data, list(params.reward.terms), params.pipeline, params.tracking.min_questions)
    lines = [*preview_lines(page, export), *check_lines(findings)]
    answer = asdict(page) | {"checks": [asdict(finding) for finding in findings]}
    show(answer, lines, as_json=as_json, code=int(any(finding.level == "fail" for finding in findings)))


@app.command()
def serve(
    model: Annotated[
        str, Option(help="models:/NAME@ALIAS, which is followed, or a folder (default: the champion of params.yaml)")
    ] = "",
    index: Annotated[Path, Option(metavar="DIR", help="the project whose data/ is searched")] = Path(),
    host: Annotated[str, Option(help="address; one that other machines reach needs a token")] = "127.0.0.1",
    port: Annotated[int, Option(min=0, max=65535, help="0 takes a free one")] = 8002,
    token_variable: Annotated[str, Option(metavar="NAME", help="environment variable with the token, if any")] = (
        "HARR_SERVE_TOKEN"
    ),
    dtype: Annotated[
        Literal["auto", "float32", "bfloat16"],
        Option(help="what queries are encoded in; auto tries which is faster, float32 gives the ids of evaluation"),
    ] = "auto",
    room: Annotated[int, Option(min=1, help="searches that may wait; beyond that the answer is 503")] = 4096,
    observer: Annotated[
        list[str] | None, Option(metavar="NAME[=TEXT] ...", help="package.module:name of what watches the answers")
    ] = None,
) -> None:
    """Answer searches with a trained retriever: HTTP, MCP.

    Follows its alias in the registry: after a promotion or rollback the next answers come from the new version, with
    the same passages and index. The server's page, at /, compares the passages of the base encoder and the trained one.
    """
    from flows.serve import serve as answer

    run_command(lambda: answer(model, index, host, port, token_variable, dtype, room, observer or ()))


@app.command()
def record(
    recipe: Recipe = "params.yaml",
    register: Annotated[
        bool, Option("--register", help="there must be a model, also one that was rolled back")
    ] = False,
) -> None:
    """Report to MLflow what it has not received yet.

    Reports runs of every folder, and the model in models/ as the candidate, even if DVC took it from its cache or a
    remote. What MLflow has already is unchanged; a model that was rolled back becomes the candidate only by --register.
    """
    from flows.run import record_runs

    run_command(lambda: print(*record_runs(recipe, register=register) or ["MLflow has everything"], sep="\n"))


@app.command()
def report() -> None:
    """Print the table of the last run and what it means."""
    from harr.params import Params
    from tasks.runtime.output import end_of_run

    run_command(lambda: print(end_of_run(Params.load())))


@app.command()
def status(as_json: AsJson = False) -> None:
    """Show what is stale and why, models, unfinished work."""
    from flows.status import status
    from flows.terminal import show, status_lines

    state = status(Path(), os.environ)
    show(asdict(state), status_lines(state), as_json=as_json)


def add_plugins(words: Sequence[str] = ()) -> None:
    """Add the commands of installed plug-ins, unless these words begin with a command of harr's own.

    A plug-in names its commands as entry points of the group ``harr.commands`` (docs/extend.md).
    """
    if not {command.callback.__name__ for command in app.registered_commands if command.callback}.isdisjoint(words[:1]):
        return
    entries = {entry.name: entry for entry in entry_points(group="harr.commands")}
    for name, entry in sorted(entries.items()):
        try:
            app.command(name)(entry.load())
        except Exception as error:  # whatever the import of a broken or an older package raises
            why = f"{type(error).__name__}: {one_line(error)}"
            raise ParamsError(
                f"plug-in command {name} ({entry.value}) cannot be loaded ({why}); install it again"
            ) from None
    word = "".join(words[:1])
    extra = "local" if word in LOCAL else word
    if word not in entries and extra in (metadata("harr").get_all("Provides-Extra") or ()):
        install = f"`pip install 'harr[{extra}]'` (in a clone: `make .venv/dev`)"
        sys.exit(f"error: no command {word} is installed; run {install}")


def main(*words: str) -> None:
    """Run `harr` with these words, or with those of the command line."""
    arguments = words or sys.argv[1:]
    with errors_in_a_line():
        add_plugins(arguments)
    call(app, "harr", arguments)


if __name__ == "__main__":
    main()
