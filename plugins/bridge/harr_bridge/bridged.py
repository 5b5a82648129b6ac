"""From pairs of vectors to a query encoder for documents that keep theirs: learn, measure, write a stock folder.

Passages have vectors already, so only the new encoder reads a sample of them. Both read the training questions.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize

from harr.corpus.passages import Passages
from harr.corpus.vectors import Vectors
from harr.embed.encoder import Encoder
from harr.errors import CorpusError, ModelError
from harr.io.files import draft, write_json, write_text
from harr.merge.card import model_card, usage
from harr.merge.retriever import PROBES, save_stock
from harr.types import Question
from harr_bridge.maps import SpaceMap, fitted_maps

DEPTH = 10
"""Number of nearest passages among which gold, and agreement with the old encoder, is looked for."""
HELD_OUT = 5
"""One in this many texts is held out to choose the map; only questions, if at least ``FEW`` can be."""
FEW = 20
BATCH = 32
RESAMPLES = 2000
Vector = NDArray[np.float32]
Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Pairs:
    """Both encoders' vectors of the same texts: passages, then questions."""

    rows: Rows
    """Rows of the passages, ascending."""
    new_ND: Vector
    """Vectors from the new encoder."""
    old_NM: Vector
    """Vectors from the encoder of the documents."""
    passage_seconds: float
    """Time of the new encoder per passage."""
    seconds: float
    """Total time."""


def read_pairs(
    passages: Passages, vectors: Vectors, documents: Encoder, queries: Encoder, questions: Sequence[str], rows: Rows
) -> Pairs:
    """Encode passages with the new encoder, as passages, and questions with both, as queries."""
    begun = time.perf_counter()
    texts = [passage.content for passage in passages.take(rows.tolist())]
    new_ND = queries.encode(texts, prompt=queries.passage_prompt, batch_size=BATCH)
    passage_seconds = (time.perf_counter() - begun) / len(rows)
    asked_new = queries.encode(questions, prompt=queries.plain_prompt, batch_size=BATCH)
    asked_old = documents.encode(questions, prompt=documents.plain_prompt, batch_size=BATCH)
    both = np.concatenate([new_ND, asked_new]), np.concatenate([vectors.take(rows), asked_old])
    return Pairs(rows, *both, passage_seconds, time.perf_counter() - begun)


def learn(pairs: Pairs, seed: int) -> tuple[SpaceMap, dict[str, float], float]:
    """Return the best map, the score of every map, and the seconds it took.

    A map's score is the share of the old encoder's ``DEPTH`` nearest passages that it also finds for held-out texts,
    among the passages of ``pairs``.
    """
    begun = time.perf_counter()
    count, drawn = len(pairs.rows), np.random.default_rng(seed)
    order = drawn.permutation(len(pairs.new_ND))
    asked = order[order >= count]
    tried = asked if len(asked) >= HELD_OUT * FEW else order
    tried = tried[: max(1, len(tried) // HELD_OUT)]
    learnt = np.setdiff1d(order, tried)
    wanted = _nearest(pairs.old_NM[tried], pairs.old_NM[:count])
    best: tuple[float, SpaceMap] | None = None
    worth: dict[str, float] = {}
    for made in fitted_maps(pairs.new_ND[learnt], pairs.old_NM[learnt], seed):
        found = _nearest(made(pairs.new_ND[tried]), pairs.old_NM[:count])
        worth[made.name] = float(np.mean([len({*a} & {*b}) / len(a) for a, b in zip(wanted, found, strict=True)]))
        if best is None or worth[made.name] > best[0]:
            best = worth[made.name], made
    assert best is not None
    return best[1], worth, time.perf_counter() - begun


def _nearest(queries_QD: Vector, passages_ND: Vector) -> Rows:
    """Return the places of the nearest passages, best first, shape (Q, ``DEPTH``)."""
    blocks = (queries_QD[start : start + 256] for start in range(0, len(queries_QD), 256))
    return np.concatenate([np.argsort(-(block @ passages_ND.T), 1, "stable")[:, :DEPTH] for block in blocks])


def recalls(
    questions: Sequence[Question],
    passages: Passages,
    vectors: Vectors,
    documents: Encoder,
    queries: Encoder,
    bridge: SpaceMap,
    pairs: Pairs,
) -> dict[str, list[float]]:
    """Return each question's recall at ``DEPTH``: old encoder, bridge, and full re-embedding.

    All three search the same passages: those of ``pairs`` and the questions' gold, as only these are embedded again
    here. ``old_all`` and ``bridge_all`` search the whole index.

    Raises:
        CorpusError: no question has gold in the index.
    """
    searchable = passages.searchable_rows()
    row_of = passages.rows_of({pid for question in questions for pid in question.gold_ids})
    indexed = np.isin(np.asarray([*row_of.values()], dtype=np.int64), searchable)
    row_of = {pid: row for (pid, row), kept in zip(row_of.items(), indexed, strict=True) if kept}
    asked = [question for question in questions if any(pid in row_of for pid in question.gold_ids)]
    if not asked:
        raise CorpusError("no question has gold in the index; name a file of questions about it with --questions")
    gold = [{row_of[pid] for pid in question.gold_ids if pid in row_of} for question in asked]
    further = np.setdiff1d(sorted(set().union(*gold)), pairs.rows)
    texts = [passage.content for passage in passages.take(further.tolist())]
    fresh_ND = queries.encode(texts, prompt=queries.passage_prompt, batch_size=BATCH)
    some = np.concatenate([pairs.rows, further])
    anew_ND = np.concatenate([pairs.new_ND[: len(pairs.rows)], fresh_ND])
    said = [question.text for question in asked]
    old_QM = documents.encode(said, prompt=documents.plain_prompt, batch_size=BATCH)
    new_QD = queries.encode(said, prompt=queries.plain_prompt, batch_size=BATCH)
    kept_NM = vectors.take(some)
    found = {
        "old": some[_nearest(old_QM, kept_NM)],
        "bridge": some[_nearest(bridge(new_QD), kept_NM)],
        "re_embedded": some[_nearest(new_QD, anew_ND)],
        "old_all": _scan(old_QM, vectors, searchable),
        "bridge_all": _scan(bridge(new_QD), vectors, searchable),
    }
    return {
        name: [len(own & {*rows}) / len(own) for own, rows in zip(gold, top.tolist(), strict=True)]
        for name, top in found.items()
    }


def _scan(queries_QD: Vector, vectors: Vectors, searchable: Rows) -> Rows:
    """Return the rows of the nearest searchable passages of the whole corpus, scanned in blocks."""
    scores_QN, rows_QN = np.empty((len(queries_QD), 0), np.float32), np.empty((len(queries_QD), 0), np.int64)
    for start in range(0, len(searchable), 16_384):
        block = searchable[start : start + 16_384]
        scores = np.concatenate([scores_QN, queries_QD @ vectors.take(block).T], 1)
        rows = np.concatenate([rows_QN, np.broadcast_to(block, (len(queries_QD), len(block)))], 1)
        kept = np.argsort(-scores, 1, "stable")[:, :DEPTH]
        scores_QN, rows_QN = np.take_along_axis(scores, kept, 1), np.take_along_axis(rows, kept, 1)
    return rows_QN


def share_of(ours: Sequence[float], theirs: Sequence[float], seed: int) -> tuple[float, float, float]:
    """Return the ratio of two means over the same questions, with its 95 % interval by a bootstrap over questions.

    >>> share_of([0.5, 0.5], [1.0, 1.0], seed=0)
    (0.5, 0.5, 0.5)
    """
    pair, drawn = np.asarray([ours, theirs]), np.random.default_rng(seed)
    sums = pair[:, drawn.integers(0, pair.shape[1], (RESAMPLES, pair.shape[1]))].sum(-1)
    whole, draws = pair.sum(1), sums[0] / np.maximum(sums[1], 1e-9)
    low, high = np.quantile(draws, (0.025, 0.975))
    return float(whole[0] / max(whole[1], 1e-9)), float(low), float(high)


def write_bridged(queries: Encoder, bridge: SpaceMap, out: Path, work: Path, facts: Mapping[str, str]) -> None:
    """Publish the new encoder, followed by the map, as a stock sentence-transformers folder.

    Modules: those of the encoder, ``Normalize``, a ``Dense`` for every layer of the map, ``Normalize``. The folder is
    loaded again and compared before it is published.

    Raises:
        ModelError: the folder's vectors differ.
    """
    wanted_ND = bridge(queries.encode(PROBES, prompt=queries.query_prompt))
    modules = [*queries.model, Normalize(), *bridge.modules(), Normalize()]
    model = SentenceTransformer(modules=modules, device="cpu", local_files_only=True)
    with draft(work / "bridged", out) as folder:
        save_stock(model, folder, queries)
        what = f"It encodes *queries* for an index of {facts['base_model']}; it is no encoder of passages."
        card = model_card("retriever", facts, title="A bridged query encoder", what=what, use=usage(facts))
        write_text(folder / "README.md", card)
        write_json(folder / "harr.json", dict(facts))
        again = Encoder(str(folder), max_tokens=queries.max_tokens, device="cpu")
        cosine = float((again.encode(PROBES, prompt=queries.query_prompt) * wanted_ND).sum(-1).min())
        if not cosine > 0.9999:
            raise ModelError(
                f"the bridged folder differs from the encoder and its map: cosine {cosine:.6f} on a probe, at least "
                "0.9999 is wanted; nothing was written; name another --model"
            )
