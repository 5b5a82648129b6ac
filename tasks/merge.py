"""Stage merge: the adapter into the encoder, and a new version in the registry."""

import json
from pathlib import Path

from prefect import task

from harr.files import fingerprint, read_json
from harr.params import Params
from tasks.common import TASK
from tasks.download import CORPUS, QUESTIONS
from tasks.embed import VECTORS
from tasks.evaluate import EVALUATION
from tasks.fingerprints import digest_of, revisions
from tasks.registry import register
from tasks.tracking import Run
from tasks.train import ADAPTER

RETRIEVER, WORK = Path("models/retriever"), Path("work/merge")


@task(**TASK)
def merge_adapter(params: Params) -> dict[str, float]:
    """Write models/retriever, a stock sentence-transformers folder; checked against the adapter.

    Two towers become two folders: that of the actions is models/retriever/action.
    """
    from harr.build import build_encoder
    from harr.merge import merge

    encoder = build_encoder(params)
    # The export encodes states, whose limit may differ from that of passages.
    encoder.max_tokens = encoder.model.max_seq_length = params.retriever.max_tokens
    facts = {"index_identity": read_json(VECTORS / "manifest.json")["identity"]}
    least = params.merge.min_cosine
    figures = merge(encoder, ADAPTER, RETRIEVER, WORK, min_cosine=least, facts=facts)
    if (ADAPTER / "action").exists():
        actions = build_encoder(params)
        second = merge(actions, ADAPTER / "action", RETRIEVER / "action", WORK, min_cosine=least, facts=facts)
        figures |= {f"action_{name}": value for name, value in second.items()}
    return figures


@task(**TASK)
def register_retriever(run: Run, params: Params) -> str:
    """Register the merged model with its evaluation and its fingerprints; returns the version.

    The expectations that held are figures of the stages before, so DVC ties them to the data.
    """
    index = read_json(VECTORS / "manifest.json")["identity"]
    corpus = read_json(CORPUS / "manifest.json")["identity"]
    game = params.model_dump(include={"retriever", "pipeline", "generator"}, mode="json")
    game |= params.evaluate.model_dump(include={"max_questions", "candidates"}, mode="json")
    questions = digest_of(QUESTIONS / "test.jsonl")
    tags = {
        "corpus": corpus,
        "index": index,
        "model": digest_of(RETRIEVER),
        "evaluation": fingerprint({"game": game, "index": index, "questions": questions}),
        "expectations": json.dumps(held_expectations(params)),
        "params": fingerprint(params.model_dump(mode="json")),
        **revisions(),
    }
    return register(run, params, "retriever", RETRIEVER, EVALUATION, tags)


def held_expectations(params: Params) -> dict[str, float]:
    """How many rules of every suite held in the run that made this model; 0 where there is no result."""
    suites = {
        "corpus": "download",
        "questions": "download",
        "vectors": "embed",
        "index": "index",
        "all_kept" if params.filter.keep == "all" else "filtered": "filter",
        "evaluation": "evaluate",
    }
    figures = {stage: Path("metrics") / f"{stage}.json" for stage in suites.values()}
    told = {stage: read_json(path) if path.exists() else {} for stage, path in figures.items()}
    return {suite: float(told[stage].get(f"expected_{suite}", 0)) for suite, stage in suites.items()}
