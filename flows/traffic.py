"""Commands of `harr` that answer searches, and learn from them; :mod:`flows.cli` adds them to its own."""

from pathlib import Path
from typing import Annotated, Literal

from typer import Argument, BadParameter, Option

from tasks.runtime.command import run_command

SERVE_PORT = 8002


def serve(
    model: Annotated[
        str, Option(help="models:/NAME@ALIAS, which is followed, or a folder (default: the champion of params.yaml)")
    ] = "",
    index: Annotated[Path, Option(metavar="DIR", help="the project whose data/ is searched")] = Path(),
    host: Annotated[str, Option(help="address; one that other machines reach needs a token")] = "127.0.0.1",
    port: Annotated[int, Option(min=0, max=65535, help="0 takes a free one")] = SERVE_PORT,
    token_variable: Annotated[str, Option(metavar="NAME", help="environment variable with the token, if any")] = (
        "HARR_SERVE_TOKEN"
    ),
    dtype: Annotated[
        Literal["auto", "float32", "bfloat16"],
        Option(help="what queries are encoded in; auto tries which is faster, float32 gives the ids of evaluation"),
    ] = "auto",
    room: Annotated[int, Option(min=1, help="searches that may wait; beyond that the answer is 503")] = 4096,
    stdio: Annotated[bool, Option("--stdio", help="speak MCP on stdin and stdout, not HTTP")] = False,
    log: Annotated[Path | None, Option(metavar="DIR", help="keep searches and outcomes there (`harr replay`)")] = None,
    explore: Annotated[float, Option(min=0, max=1, help="share of searches whose passages are drawn by chance")] = 0.0,
    explore_after: Annotated[
        int, Option(min=0, metavar="N", help="of those, the first N passages stay the best; the others are drawn")
    ] = 0,
    shadow: Annotated[
        str, Option(metavar="MODEL", help="another model, which ranks the same searches for the log alone")
    ] = "",
    log_days: Annotated[int, Option(min=1, metavar="N", help="days that the log goes back")] = 30,
    log_texts: Annotated[bool, Option(help="whether the log keeps questions, queries and states")] = True,
) -> None:
    """Answer searches with a trained retriever: HTTP, MCP.

    Follows its alias in the registry: after a promotion or a rollback the next answers are of the new version, and
    passages and index stay. The server's page, at /, shows passages for the base encoder and the trained one side by
    side.
    """
    from flows.serve import serve as answer
    from harr.traffic.log import Recording

    if explore and log is None:
        raise BadParameter("--explore draws passages to learn from; name a folder with --log")
    if explore_after and not explore:
        raise BadParameter(
            "--explore-after keeps first ranks of searches that explore; name their share with --explore"
        )
    if shadow and log is None:
        raise BadParameter("--shadow keeps what another model would have answered; name a folder with --log")
    recording = None if log is None else Recording(log, explore, explore_after, log_days, log_texts)
    run_command(lambda: answer(model, index, host, port, token_variable, dtype, room, stdio, recording, shadow))


def replay(
    log: Annotated[Path, Argument(metavar="LOG", help="folder of `harr serve --log`")],
    model: Annotated[
        str, Option(help="models:/NAME@ALIAS, or a folder of stage merge (default: what `harr serve --shadow` ranked)")
    ] = "",
    index: Annotated[Path, Option(metavar="DIR", help="the project whose data/ was searched")] = Path(),
    out: Annotated[Path | None, Option(metavar="FILE", help="json file for the figures")] = None,
) -> None:
    """Judge a model by logged searches, without serving it."""
    from tasks.replay import replay_log

    run_command(lambda: print(*replay_log(log, model, index, out), sep="\n"))


COMMANDS = (serve, replay)
