"""The commands `harr diagnose` and `harr explain`: their options. The code that does the work is imported on use."""

from pathlib import Path
from typing import Annotated

from typer import Option

from tasks.runtime.command import run_command


def diagnose(
    questions: Annotated[
        Path | None, Option(help="question file (default: the validation questions, filled up with those of training)")
    ] = None,
    count: Annotated[int, Option(min=10, metavar="N", help="at most so many of them, drawn by the seed")] = 300,
    out: Annotated[Path, Option(help="folder of index.html and diagnosis.json")] = Path("diagnosis"),
    curve: Annotated[
        bool, Option("--curve", help="only forecast what more training questions would give; writes curve.json")
    ] = False,
) -> None:
    """Say before training what it could add, and what to do.

    Plays every arm that needs no training, and some rollouts. With --curve it instead trains infonce, or boosted trees
    if retriever.link_features is set (plug-in trees), on parts of the training questions. Stages download, embed, index
    and generator run first if there is no index yet.
    """
    from flows.reproduce import BEFORE_TRAINING, reproduce
    from harr.errors import ParamsError
    from harr.params import Params
    from harr_diagnose.curve import measure_curve
    from harr_diagnose.diagnose import diagnose
    from tasks.paths import PLACES

    def body() -> None:
        if curve and questions:
            raise ParamsError("--curve plays the validation questions; leave --questions out")
        if questions is None and not PLACES.index.exists():
            reproduce(BEFORE_TRAINING, Path(), "")
        if curve:
            print(*measure_curve(Params.load(), count, out), sep="\n")
            return
        print(*(f"- {sentence}" for sentence in diagnose(Params.load(), questions, count, out)), sep="\n")
        print(f"page: {(out / 'index.html').resolve()}")

    run_command(body)


def explain(
    general: Annotated[
        Path | None,
        Option(
            metavar="FILE", help="questions with gold that training must not harm (default: the corpus's own titles)"
        ),
    ] = None,
    out: Annotated[Path, Option(metavar="FILE", help="where the causes and their evidence go")] = Path(
        "explanation.json"
    ),
) -> None:
    """Say after training why it gained nothing, or harmed.

    Names causes, each with its evidence and what to do.

    Reads the outputs of the stages up to evaluate, and searches again for some training questions.
    """
    from harr.params import Params
    from harr_diagnose.explain import explain_training

    def body() -> None:
        print(*explain_training(Params.load(), general, out), sep="\n")

    run_command(body)
