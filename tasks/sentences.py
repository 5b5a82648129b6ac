"""What every stage does, in a sentence: on the terminal and as the description of its run in MLflow."""

import contextlib
from collections.abc import Callable
from pathlib import Path

from harr.io.files import read_json
from harr.params import Params
from tasks.paths import ADAPTER, CORPUS, FILTERED, QUESTIONS

SENTENCES: dict[str, Callable[[Params], str]] = {
    "download": lambda own: f"make or fetch passages and questions: {own.download.dataset}",
    "embed": lambda own: f"turn {_passages()} into vectors by {own.encoder.model}",
    "index": lambda own: f"put the vectors of {_passages()} into {own.index.uri or 'Milvus Lite'}",
    "generator": lambda own: f"prepare the generator of answers: kind {own.generator.kind}",
    "filter": lambda own: f"choose what to learn from, out of {_questions('train')}",
    "train": lambda own: f"train the {own.train.learns.replace('_', ' ')} by {own.train.method}{_describe_filter()}",
    "arms": lambda own: f"train the rivals of the arm trained: {_rivals(own)}",
    "evaluate": lambda own: f"play {len(own.evaluate.arm_table)} arms on {_questions('test')}",
    "report": lambda own: f"draw what {len(own.evaluate.arm_table)} arms have reached",
    "merge": lambda own: "merge the trained weights into the model, and register it",
}
"""What every stage does, and on what."""


def description(stage: str, params: Params) -> str:
    """Return what a stage does as a full sentence, for the page of its run; empty for other stages.

    >>> from harr.params import Params
    >>> description("merge", Params.model_construct())
    'Merge the trained weights into the model, and register it.'
    """
    if stage == "register":
        return "Register the model in models/, which another folder or an earlier run made."
    sentence = SENTENCES[stage](params) if stage in SENTENCES else ""
    return f"{sentence[:1].upper()}{sentence[1:]}{'.' if sentence else ''}"


def _passages() -> str:
    with contextlib.suppress(OSError, ValueError, LookupError):
        return f"{read_json(CORPUS / 'manifest.json')['rows']:,} passages"
    return "passages"


def _questions(split: str) -> str:
    return f"{_count(QUESTIONS / f'{split}.jsonl')}{split} questions"


def _describe_filter() -> str:
    return f" on {count}questions" if (count := _count(FILTERED / "questions.jsonl")) else ""


def _count(path: Path) -> str:
    with contextlib.suppress(OSError), path.open("rb") as lines:
        return f"{sum(1 for _ in lines):,} "
    return ""


def _rivals(params: Params) -> str:
    from tasks.trained_runs import trained_runs

    folders = {folder for arm in trained_runs(params).values() for folder in arm if not folder.is_relative_to(ADAPTER)}
    return f"{len(folders)} run{'' if len(folders) == 1 else 's'}" if folders else "none is asked for"
