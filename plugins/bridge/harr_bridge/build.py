"""Another query encoder for existing vectors: learn the map, write the folder, report what it finds."""

from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any

from harr.errors import CorpusError, IndexMismatch, ParamsError
from harr.params import Params
from harr.types import Question
from tasks.paths import CORPUS, QUESTIONS, VALIDATION, VECTORS, WORK

if TYPE_CHECKING:
    from harr.corpus.passages import Passages
    from harr.corpus.vectors import Vectors
    from harr.embed.encoder import Encoder


def bridge_encoder(
    params: Params, model: str, texts: int, questions: Path | None, out: Path, **prompts: Any
) -> list[str]:
    """Learn the map from a model's space into that of data/vectors; write the model with it as a folder.

    Args:
        params: parameters of the run; section ``encoder`` is that of the documents.
        model: folder or hub name of the new query encoder.
        texts: maximum number of passages, and of training questions, to learn the map from; drawn by ``seed``.
        questions: file to measure recall on; None: the validation questions.
        out: folder of the bridged encoder.
        prompts: ``query_prompt`` and ``passage_prompt`` of the new encoder; None: its own.

    Returns:
        The findings, one sentence each.

    Raises:
        ParamsError: ``out`` exists and is no bridge. ModelError: the model cannot be used.
        IndexMismatch: the vectors are of another encoder or corpus. CorpusError: no question to measure recall on.
    """
    import numpy as np

    from harr.builders.fit import facts_of
    from harr.corpus.sample import draw_questions
    from harr.embed.encoder import Encoder
    from harr_bridge.bridged import learn, read_pairs, recalls, write_bridged

    if out.exists() and facts_of(out).get("kind") != "bridge":
        raise ParamsError(f"{out} is there already, and no bridge; remove it, or name another folder")
    passages, vectors, documents = _documents(params)
    queries = Encoder(model, max_tokens=params.encoder.max_tokens, **prompts)
    measured = _questions(questions)
    asked = [question.text for question in draw_questions(_questions(QUESTIONS / "train.jsonl"), texts, params.seed)]
    searchable, drawn = passages.searchable_rows(), np.random.default_rng(params.seed)
    rows = np.sort(drawn.choice(searchable, min(texts, len(searchable)), replace=False))
    pairs = read_pairs(passages, vectors, documents, queries, asked, rows)
    found, worth, fitted = learn(pairs, params.seed)
    facts = {
        "kind": "bridge",
        "base_model": documents.name,
        "documents": documents.identity,
        "queries_model": queries.name,
        "queries": queries.identity,
        "map": found.name,
        "passages": str(len(rows)),
        "questions": str(len(asked)),
    }
    rates = recalls(measured, passages, vectors, documents, queries, found, pairs)
    write_bridged(queries, found, out, WORK / "bridge", facts)
    seconds = pairs.seconds + fitted
    return [
        f"map: {found.name}, of {len(worth)} tried; it finds {worth[found.name]:.1%} of the ten passages that "
        f"{documents.name} finds, on texts that it did not learn from",
        *_recall_lines(rates, params.seed, len(rows)),
        f"{seconds:.0f} s for {len(rows):,} passages and {len(asked):,} questions: "
        + _share(seconds, pairs.passage_seconds, len(passages)),
        f"written: {out}; name it in retriever.encoder",
    ]


def _documents(params: Params) -> "tuple[Passages, Vectors, Encoder]":
    """Return the passages, their vectors and the encoder that made them.

    Raises:
        IndexMismatch: they do not belong together.
    """
    from harr.builders.encoder import build_encoder
    from harr.corpus.passages import Passages
    from harr.corpus.vectors import Vectors

    passages = Passages.open(CORPUS)
    vectors, documents = Vectors.of(passages, VECTORS), build_encoder(params.encoder)
    if documents.identity != (made := vectors.manifest["encoder"]):
        raise IndexMismatch(
            f"{VECTORS} was made by encoder {made}, but encoder.model {documents.name} is {documents.identity}; "
            "run `dvc repro`, or set encoder back"
        )
    return passages, vectors, documents


def _questions(file: Path | None) -> list[Question]:
    """Return the questions of a file, or the validation questions.

    Raises:
        CorpusError: there are none.
    """
    from harr.corpus.passages import read_questions
    from harr.datasets.local import read_question_file

    if file is None and not VALIDATION.exists():
        raise CorpusError(f"{VALIDATION} does not exist; set download.validation_questions, or name --questions")
    own = file is None or file.parent == QUESTIONS
    return read_questions(file or VALIDATION) if own else list(read_question_file(file or VALIDATION))


def _recall_lines(rates: dict[str, list[float]], seed: int, sample: int) -> list[str]:
    """Return recall in words."""
    from harr_bridge.bridged import DEPTH, share_of

    shares = {name: f"{mean(values):.1%}" for name, values in rates.items()}
    share, low, high = share_of(rates["bridge"], rates["re_embedded"], seed)
    return [
        f"recall@{DEPTH} in the index, n {len(rates['old'])}: {shares['old_all']} by the old encoder, "
        f"{shares['bridge_all']} by the bridge",
        f"recall@{DEPTH} in a sample of {sample:,} passages and the gold: {shares['old']} by the old encoder, "
        f"{shares['bridge']} by the bridge, {shares['re_embedded']} if the new one embedded the passages again",
        f"the bridge keeps {share:.1%} [{low:.1%}, {high:.1%}] of the recall of re-embedding",
    ]


def _share(seconds: float, passage_seconds: float, corpus: int) -> str:
    """Return the cost of a bridge relative to embedding the corpus again.

    >>> _share(10.0, 0.1, 10_000)
    '1.00 % of what embedding all 10,000 passages again takes; 1 % from 10,000 passages on'
    """
    whole = passage_seconds * corpus
    return (
        f"{100 * seconds / whole:.2f} % of what embedding all {corpus:,} passages again takes; "
        f"1 % from {100 * seconds / passage_seconds:,.0f} passages on"
    )
