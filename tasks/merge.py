"""Stage merge: the adapter into the model that was trained, and a new version in the registry."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prefect import task

from harr.files import fingerprint, publish, read_json, write_json
from harr.params import Params
from tasks.common import TASK
from tasks.download import CORPUS, QUESTIONS
from tasks.embed import VECTORS
from tasks.evaluate import EVALUATION
from tasks.filter import filter_suite
from tasks.fingerprints import digest_of, revisions
from tasks.registry import register
from tasks.tracking import Run
from tasks.train import ADAPTER

RETRIEVER, LLM, WORK = Path("models/retriever"), Path("models/llm"), Path("work/merge")


@task(**TASK)
def merge_adapter(params: Params) -> dict[str, float]:
    """Write what was trained as a stock folder, models/retriever or models/llm, checked against the adapter.

    The other folder says in ``untrained.json`` who played there. Two towers become two folders: that of the actions
    is models/retriever/action.
    """
    facts = {"index_identity": read_json(VECTORS / "manifest.json")["identity"]}
    if params.writer_learns:
        from harr.merge_llm import merge_llm

        _note(RETRIEVER, params.model_dump(include={"encoder", "retriever"}, mode="json"))
        return merge_llm(ADAPTER, LLM, WORK, facts=facts)
    _note(LLM, params.model_dump(include={"generator"}, mode="json"))
    return _merge_retriever(params, facts)


def _merge_retriever(params: Params, facts: Mapping[str, str]) -> dict[str, float]:
    from harr.build import build_encoder
    from harr.merge import merge

    encoder = build_encoder(params)
    # The export encodes states, whose limit may differ from that of passages.
    encoder.max_tokens = encoder.model.max_seq_length = params.retriever.max_tokens
    least = params.merge.min_cosine
    figures = merge(encoder, ADAPTER, RETRIEVER, WORK, min_cosine=least, facts=facts)
    if (ADAPTER / "action").exists():
        actions = build_encoder(params)
        second = merge(actions, ADAPTER / "action", RETRIEVER / "action", WORK, min_cosine=least, facts=facts)
        figures |= {f"action_{name}": value for name, value in second.items()}
    return figures


def _note(folder: Path, sections: Mapping[str, Any]) -> None:
    """A folder that says only that nothing was trained here."""
    draft = WORK / "note"
    shutil.rmtree(draft, ignore_errors=True)
    write_json(draft / "untrained.json", sections)
    publish(draft, folder)


@task(**TASK)
def register_model(run: Run, params: Params) -> str:
    """Register the merged model with its evaluation and its fingerprints; returns the version.

    The expectations that held are figures of the stages before, so DVC ties them to the data.
    """
    writes = params.writer_learns
    index = read_json(VECTORS / "manifest.json")["identity"]
    corpus = read_json(CORPUS / "manifest.json")["identity"]
    played = {"retriever", "pipeline"} if writes else {"retriever", "pipeline", "generator"}
    game = params.model_dump(include=played, mode="json")
    game |= params.evaluate.model_dump(include={"max_questions", "candidates"}, mode="json")
    questions = digest_of(QUESTIONS / "test.jsonl")
    folder = LLM if writes else RETRIEVER
    tags = {
        "corpus": corpus,
        "index": index,
        "model": digest_of(folder),
        "evaluation": fingerprint({"game": game, "index": index, "questions": questions}),
        "expectations": json.dumps(held_expectations(params)),
        "params": fingerprint(params.model_dump(mode="json")),
        **revisions(),
    }
    return register(run, params, "llm" if writes else "retriever", folder, EVALUATION, tags)


def held_expectations(params: Params) -> dict[str, float]:
    """How many rules of every suite held in the run that made this model; 0 where there is no result."""
    suites = {
        "corpus": "download",
        "questions": "download",
        "vectors": "embed",
        "index": "index",
        filter_suite(params): "filter",
        "evaluation": "evaluate",
    }
    figures = {stage: Path("metrics") / f"{stage}.json" for stage in suites.values()}
    told = {stage: read_json(path) if path.exists() else {} for stage, path in figures.items()}
    return {suite: float(told[stage].get(f"expected_{suite}", 0)) for suite, stage in suites.items()}
