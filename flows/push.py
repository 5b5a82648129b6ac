"""To the hub: `python -m flows.push --dataset OWNER/NAME --model OWNER/NAME [--private] [--dry-run]`."""

import argparse

from flows.runtime.command import run_command
from tasks.push import push


def command() -> None:
    """Push the filtered questions, the merged model, or both; with --dry-run only say what would be sent."""
    parser = argparse.ArgumentParser(
        prog="python -m flows.push",
        description="Push the filtered questions and the merged model to the hub, each with a card.",
        epilog="The token is read from the environment variable HF_TOKEN; HF_ENDPOINT names another hub.",
    )
    parser.add_argument("--dataset", default="", metavar="OWNER/NAME", help="where data/filtered goes")
    parser.add_argument(
        "--model", default="", metavar="OWNER/NAME", help="where what was trained goes: models/retriever or models/llm"
    )
    parser.add_argument("--private", action="store_true", help="new repositories are private; a public one is refused")
    parser.add_argument("--license", default="", help="the licence that the cards name, e.g. mit (default: none)")
    parser.add_argument("--dry-run", action="store_true", help="print what would be sent, and send nothing")
    options = parser.parse_args()
    if not (options.dataset or options.model):
        parser.error("name --dataset, --model or both")
    run_command(
        lambda: push(
            options.dataset,
            options.model,
            private=options.private,
            dry_run=options.dry_run,
            license=options.license,
        )
    )


if __name__ == "__main__":
    command()
