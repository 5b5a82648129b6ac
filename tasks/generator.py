"""Stage generator: the language model that plays, if this project trains it."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from harr.io.files import draft, finish, write_json
from harr.params import Params
from harr.params.functions import function_of
from harr.params.generator import GOLD
from harr.types import Log
from tasks.paths import CORPUS, GENERATOR, QUESTIONS, WORK
from tasks.runtime.stage import main
from tasks.tracking.run import Run


def make_generator(params: Params, log: Log) -> dict[str, float]:
    """Have another package train a language model, or warm up a given one; else only note the parameters."""
    section, work = params.generator, WORK / "generator"
    if section.kind == "trained":
        shape = "trains a model: (params, out, work, log) -> figures"
        train = function_of(section.function, key="generator.function", shape=shape, takes=4)
        figures: dict[str, float] = train(params, GENERATOR, work, log)
        return figures
    if section.kind == "local" and section.warmstart:
        from harr.generator.warmstart import train_warmstart

        readings = read_gold(params) if section.warmstart.demonstrations == GOLD else ()
        return train_warmstart(section, GENERATOR, work, log, params.seed, readings)
    with draft(work / "note", GENERATOR) as note:
        write_json(note / "generator.json", section.model_dump(mode="json"))
    return {"trained": 0.0}


def read_gold(params: Params) -> Sequence[Mapping[str, Any]]:
    """Return what a reader should answer to the training questions."""
    from harr.corpus.passages import Passages, read_questions
    from harr.generator.readings import make_readings

    questions, picks = read_questions(QUESTIONS / "train.jsonl"), getattr(params.pipeline, "picks", 0)
    return make_readings(questions, Passages.open(CORPUS), picks, params.seed)


def generator(params: Params, run: Run) -> None:
    """Train the language model with `generator.kind: trained` or `generator.warmstart`; else only note what plays."""
    run.record("generator", make_generator(params, run.log))


if __name__ == "__main__":
    main("generator", generator, end=partial(finish, WORK / "generator"))
