"""Stage generator: the language model that plays, where this project trains it itself."""

from prefect import task

from harr.io.files import draft, write_json
from harr.params import Params
from harr.types import Log
from tasks.common import GPU_TASK
from tasks.paths import GENERATOR, WORK


@task(**GPU_TASK)
def make_generator(params: Params, log: Log) -> dict[str, float]:
    """Train the small language model, or warm up a given one; of any other generator only its parameters are noted."""
    section, work = params.generator, WORK / "generator"
    if section.kind == "small_lm":
        from harr.generator.small_lm import train_small_lm

        return train_small_lm(section, params.retriever.k, GENERATOR, work, log, params.seed)
    if section.kind == "warmstart":
        from harr.generator.warmstart import train_warmstart

        return train_warmstart(section, GENERATOR, work, log, params.seed)
    with draft(work / "note", GENERATOR) as note:
        write_json(note / "generator.json", section.model_dump(mode="json"))
    return {"trained": 0.0}
