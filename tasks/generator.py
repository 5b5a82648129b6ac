"""Stage generator: the language model that plays, where this project trains it itself."""

from functools import partial

from harr.io.files import draft, finish, write_json
from harr.params import Params
from harr.params.functions import function_of
from harr.types import Log
from tasks.paths import GENERATOR, WORK
from tasks.runtime.stage import main
from tasks.tracking.run import Run


def make_generator(params: Params, log: Log) -> dict[str, float]:
    """Have another package train a language model, or warm up a given one; of others only the parameters are noted."""
    section, work = params.generator, WORK / "generator"
    if section.kind == "trained":
        shape = "trains a model: (params, out, work, log) -> figures"
        train = function_of(section.function, key="generator.function", shape=shape, takes=4)
        figures: dict[str, float] = train(params, GENERATOR, work, log)
        return figures
    if section.kind == "local" and section.warmstart:
        from harr.generator.warmstart import train_warmstart

        return train_warmstart(section, GENERATOR, work, log, params.seed)
    with draft(work / "note", GENERATOR) as note:
        write_json(note / "generator.json", section.model_dump(mode="json"))
    return {"trained": 0.0}


def generator(params: Params, run: Run) -> None:
    """Train the language model of `generator.kind: trained` or with `generator.warmstart`; of others only note what plays."""
    run.record("generator", make_generator(params, run.log))


if __name__ == "__main__":
    main("generator", generator, end=partial(finish, WORK / "generator"))
