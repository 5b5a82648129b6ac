"""The command `harr wrap-vectors`."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from tasks.runtime.command import run_command


def wrap_vectors(
    folder: Annotated[Path, Argument(help="where the encoder appears; then encoder.model names it")],
    vectors: Annotated[
        list[Path], Option(help="Parquet or JSON lines with id (or text) and vector; X.npy has its ids in X.ids")
    ] = [],  # noqa: B006
    texts: Annotated[
        list[Path], Option(help="passages and questions (JSON lines, Parquet), whose ids the vectors have")
    ] = [],  # noqa: B006
    model: Annotated[str, Option(help="model of an OpenAI-compatible API, for texts without a vector in a file")] = "",
    url_variable: Annotated[str, Option(help="environment variable with the address of the API")] = "OPENAI_BASE_URL",
    key_variable: Annotated[str, Option(help="environment variable with its key")] = "OPENAI_API_KEY",
) -> None:
    """Make an encoder of vectors that you keep.

    They come from files, from an embedding API, or from both. No layer of such an encoder can be trained:
    `retriever.learns: query_adapter` trains a matrix over its vectors, and the passages' vectors stay as they are.
    """

    def body() -> None:
        from harr_vectors.external import Api
        from harr_vectors.wrap import wrap

        print(wrap(folder, vectors, texts, Api(model, url_variable, key_variable) if model else None))

    run_command(body)
