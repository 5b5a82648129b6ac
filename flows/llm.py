"""Commands of `harr` for what writes and answers; :mod:`flows.cli` adds them to its own."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from flows.runtime.command import run_command


def ask(
    question: Annotated[str, Argument(metavar="QUESTION", help="the question, in quotation marks")],
    model: Annotated[
        Path | None, Option(help="adapter or merged model of what learns (default: models/llm or models/retriever)")
    ] = None,
    as_json: Annotated[bool, Option("--json", help="print one JSON object")] = False,
) -> None:
    """Answer a question by the pipeline of params.yaml.

    Prints every search with its passages, then the answer. Needs what stages embed and index have made.
    """

    def body() -> None:
        import json

        from harr.params import Params
        from tasks import ask as asked

        episode = asked.ask(Params.load(), question, model)
        told = asked.as_json(episode)
        print(json.dumps(told, indent=2, ensure_ascii=False) if as_json else "\n".join(asked.lines(episode)))

    run_command(body)


def merge(
    base: Annotated[str, Option(help="the language model that the adapter is for: a folder, or a cached hub name")],
    adapter: Annotated[Path, Option(help="folder of a LoRA, as PEFT saves it")],
    out: Annotated[Path, Option(help="new folder of the merged model")],
) -> None:
    """Merge a LoRA of a language model into its base.

    The merged model is read again, and its logits are compared with the adapter's before the folder appears.
    """

    def body() -> None:
        from harr.merge.llm import merge_by_paths

        found = merge_by_paths(base, adapter, out)
        print(f"merged into {out}; a logit differs by at most {found['logit_difference_max']:.6f}")

    run_command(body)


COMMANDS = (ask, merge)
