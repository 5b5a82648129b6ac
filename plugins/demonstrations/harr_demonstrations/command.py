"""The command `harr demonstrations`."""

from pathlib import Path
from typing import Annotated

from typer import Option

from tasks.runtime.command import run_command


def demonstrations(
    out: Annotated[Path, Option(help="new file of demonstrations, for generator.warmstart.demonstrations")],
    model: Annotated[
        str, Option(help="the teacher: a folder, a name, or package.module:name (default: what this project trained)")
    ] = "",
    base_url: Annotated[str, Option(metavar="URL", help="OpenAI-compatible server of the teacher, if it has one")] = "",
    tokenizer: Annotated[str, Option(help="folder or name of a server's tokenizer: asks in its chat template")] = "",
    questions: Annotated[Path | None, Option(help="question file (default: data/questions/train.jsonl)")] = None,
    count: Annotated[int, Option(min=0, metavar="N", help="at most so many questions; 0 takes all")] = 0,
    samples: Annotated[int, Option(min=1, metavar="N", help="episodes of a question")] = 4,
    each: Annotated[int, Option(min=1, metavar="N", help="episodes of a question that are kept at most")] = 1,
    at_least: Annotated[float, Option(metavar="R", help="reward of an episode that is kept")] = 0.9,
    temperature: Annotated[float, Option(min=0.0, help="of the teacher")] = 0.7,
    max_tokens: Annotated[int, Option(min=1, help="of a completion")] = 512,
) -> None:
    """Write the best episodes of a teacher for a warm start.

    Any model plays the pipeline of params.yaml. Without --model it is the one that this project trained: rejection
    sampling. Duplicates and leaks are dropped and counted. Needs the output of stages embed and index.
    """

    def body() -> None:
        from harr.params import Params
        from harr_demonstrations.write import Teaching, teacher_of, write_demonstrations

        params = Params.load()
        teacher = teacher_of(params, model, base_url, tokenizer, temperature, max_tokens)
        teaching = Teaching(samples, each, at_least, count)
        print(*write_demonstrations(params, teacher, teaching, questions, out), sep="\n")

    run_command(body)
