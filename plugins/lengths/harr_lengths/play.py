"""Evaluation over lengths: the same stories in ever longer documents, one log line per story."""

import copy
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from harr.corpus.passages import Passages, write_passages
from harr.corpus.vectors import Vectors
from harr.embed.encoder import Encoder
from harr.embed.shards import embed_corpus
from harr.evaluate.intervals import mean_interval
from harr.io.files import fingerprint, read_jsonl
from harr.io.progress import bar
from harr.params.embed import EmbedParams
from harr.rag.pipelines.pick import pick
from harr.rag.policies.sentence_vectors import Sentences
from harr.rag.policies.two_tower import TwoTowerPolicy
from harr.rag.rollout import play
from harr.rag.scoring.ranking import all_gold, gold_f1
from harr.types import Episode, Passage, Question
from harr_lengths.plan import plan

BATCH, ROOM = 16, 200_000
"""Maximum numbers of documents searched at a time, and of their sentences in total."""
METRICS = ("fact_em", "fact_f1")
QuestionDocument = tuple[Question, tuple[Passage, ...]]
"""A question and its document, the passages in order."""


def on_disk(noise: Sequence[str], actions: Encoder, params: EmbedParams, folder: Path) -> Sentences:
    """Encode the noise of long documents in shards under ``folder``, and map them.

    A killed call continues after its last shard, and a finished one is reused; leftovers of another tower or other
    noise are not. Only the texts and one shard are in memory.
    """
    write_passages((Passage(f"n{row:07d}", text) for row, text in enumerate(noise)), folder / "corpus")
    passages, tower = Passages.open(folder / "corpus"), copy.copy(actions)
    tower.identity = fingerprint([actions.identity, _weights(actions)])
    out = folder / fingerprint([passages.identity, tower.identity])
    if not (out / "manifest.json").exists():
        tower.model = copy.deepcopy(actions.model)  # the playing one stays as it is
        embed_corpus(passages, tower, params, out, folder)
    return Sentences(noise, Vectors.of(passages, out))


def identity(towers: TwoTowerPolicy) -> str:
    """Return the identity of the player: the weights of both towers, and how positions are encoded."""
    limits = [towers.max_tokens, *([towers.pick_tokens] if towers.pick_tokens else [])]
    return fingerprint([_weights(towers.states), _weights(towers.actions), towers.mode, *limits])


def _weights(encoder: Encoder) -> str:
    """Return a hash of the current weights; an adapter does not change an encoder's ``identity``."""
    digest = hashlib.sha256()
    for name, weight in encoder.model.state_dict().items():
        digest.update(name.encode())
        digest.update(weight.cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def play_documents(
    documents: Iterable[QuestionDocument],
    towers: TwoTowerPolicy,
    log: Path,
    *,
    picks: int,
    total: int,
    desc: str,
    beam: int = 1,
) -> list[dict[str, Any]]:
    """Pick ``picks`` sentences of every document and append a line each to ``log``; existing lines stay.

    With ``beam`` above 1, that many plans of picks are followed and the best is written.

    A line: id, question, answers, gold and picked (places in the document), texts and values of the picks,
    fact_em (all gold picked) and fact_f1. Gold never ends an episode.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    rows_by_id = {row["id"]: row for row in whole_lines(log)}
    todo = (document for document in documents if document[0].id not in rows_by_id)
    with bar(total=total, desc=desc, unit="document", initial=len(rows_by_id)) as progress:
        for batch in _batches(todo):
            rows = _play(batch, towers, picks, beam)
            with log.open("a", encoding="utf-8") as handle:
                handle.write("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
                handle.flush()
                os.fsync(handle.fileno())
            rows_by_id |= {row["id"]: row for row in rows}
            progress.update(len(rows))
    return list(rows_by_id.values())


def _batches(documents: Iterable[QuestionDocument]) -> Iterator[list[QuestionDocument]]:
    batch: list[QuestionDocument] = []
    for document in documents:
        batch.append(document)
        if len(batch) == BATCH or sum(len(passages) for _, passages in batch) >= ROOM:
            yield batch
            batch = []
    if batch:
        yield batch


def whole_lines(log: Path) -> list[dict[str, Any]]:
    """Return the lines of an earlier run, and cut off a half line left by a kill."""
    if not log.exists():
        return []
    text = log.read_bytes()
    whole = text[: text.rfind(b"\n") + 1]
    if len(whole) < len(text):
        os.truncate(log, len(whole))  # not rewritten: a kill would lose the log
    return read_jsonl(log)


def _play(batch: Sequence[QuestionDocument], towers: TwoTowerPolicy, picks: int, beam: int) -> list[dict[str, Any]]:
    for question, passages in batch:
        towers.attach_document(question, passages)
    questions = [question for question, _ in batch]
    if beam > 1:
        episodes = [plan(question, towers, picks=picks, width=beam) for question in questions]
    else:
        episodes = play(questions, partial(pick, picks=picks), towers, None)
    rows = [_row(episode, towers.documents[episode.question.id].place) for episode in episodes]
    towers.clear()
    return rows


def _row(episode: Episode, place: Mapping[str, int]) -> dict[str, Any]:
    question = episode.question
    retrievals = [step.retrieval for step in episode.steps if step.retrieval.passages]
    return {
        "id": question.id,
        "question": question.text,
        "answers": list(question.answers),
        "gold": [place[name] for name in question.gold_ids],
        "picked": [place[retrieval.passages[0].id] for retrieval in retrievals],
        "texts": [retrieval.passages[0].text for retrieval in retrievals],
        "values": [round(retrieval.value or 0.0, 4) for retrieval in retrievals],
        "fact_em": all_gold(episode),
        "fact_f1": gold_f1(episode),
    }


def by_length(
    rows_of: Mapping[int, Sequence[Mapping[str, Any]]], resamples: int, seed: int, metrics: Sequence[str] = METRICS
) -> Iterator[dict[str, Any]]:
    """Yield one row per length and metric: sentences, metric, mean, low, high (95 %, bootstrap over stories), n."""
    for sentences, rows in sorted(rows_of.items()):
        for metric in metrics:
            scores = [float(row[metric]) for row in rows if row[metric] is not None]
            yield {"sentences": sentences, "metric": metric, **mean_interval(scores, resamples=resamples, seed=seed)}
