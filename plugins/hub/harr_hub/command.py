"""The command `harr push`: its options. push.py, which does the work, is imported when the command runs."""

from typing import Annotated

from typer import BadParameter, Option

from tasks.runtime.command import run_command


def push(
    dataset: Annotated[str, Option(metavar="OWNER/NAME", help="where data/filtered goes")] = "",
    model: Annotated[
        str, Option(metavar="OWNER/NAME", help="where models/retriever or models/language_model goes")
    ] = "",
    private: Annotated[bool, Option("--private", help="new repositories are private; a public one is refused")] = False,
    license: Annotated[str, Option(help="the licence that the cards name, e.g. mit (default: none)")] = "",
    dry_run: Annotated[bool, Option("--dry-run", help="print what would be sent, and send nothing")] = False,
) -> None:
    """Push questions and model to the hub.

    The token is read from the environment variable HF_TOKEN; HF_ENDPOINT names another hub.
    """
    if not (dataset or model):
        raise BadParameter("name --dataset, --model or both")

    def body() -> None:
        from harr_hub.push import push_to_hub

        push_to_hub(dataset, model, private=private, dry_run=dry_run, license=license)

    run_command(body)
