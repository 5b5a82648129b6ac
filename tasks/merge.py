"""Stage merge: the adapter into the encoder, and a new version in the registry."""

from pathlib import Path

from prefect import task

from harr.files import fingerprint, read_json
from harr.params import Params
from tasks.common import TASK
from tasks.download import CORPUS, QUESTIONS
from tasks.embed import VECTORS
from tasks.evaluate import EVALUATION
from tasks.registry import register
from tasks.tracking import Run, digest_of, revisions
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
    """Register the merged model with its evaluation and its fingerprints; returns the version."""
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
        **revisions(),
    }
    return register(run, params, RETRIEVER, EVALUATION, tags)
