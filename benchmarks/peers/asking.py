"""Search by words, and rollouts, against how the field writes them: two parts of ``python -m benchmarks.peers``."""

import tempfile
from collections.abc import Callable, Sequence
from contextlib import chdir
from functools import partial
from pathlib import Path
from typing import Any

import bm25s
import faiss
import numpy as np
from harr_links.words import WordIndex, build_words, words_of
from sentence_transformers import SentenceTransformer

from benchmarks.index_kinds import walks
from benchmarks.million import QUERIES, download
from benchmarks.peers.turns import flops, layer_weights, row, taking_turns
from harr.arms import ARMS
from harr.builders.generators import build_generator
from harr.builders.pipeline import build_pipeline
from harr.builders.players import open_players
from harr.corpus.passages import Passages, read_questions
from harr.corpus.vectors import Vectors
from harr.index.build import build_index
from harr.index.passage_index import PassageIndex
from harr.io.model_folder import find_folder
from harr.params import Params
from harr.params.index import IndexParams
from harr.rag.policies.dense import DensePolicy
from harr.rag.rollout import play
from harr.types import Generator, Passage, Pipeline, Question, Retrieval, Search
from tasks.download import download_corpus
from tasks.embed import embed_passages
from tasks.index import index_passages
from tasks.paths import CORPUS, PLACES, QUESTIONS, VECTORS

ROOT = Path(__file__).resolve().parents[2]
N, ASKED = 30, 64


def words(rows: int, times: int) -> list[dict[str, Any]]:
    """Compare BM25 for the 30 best passages of a fictional encyclopaedia.

    The limit is one reading of the weights of the questions' words, and of a score for every passage.
    """
    with tempfile.TemporaryDirectory() as place, chdir(place):
        download(rows, 64)
        passages = Passages.open(Path("corpus"))
        asked = [question.text for question in read_questions(Path("questions/test.jsonl"))]
        texts = [passage.content for passage in passages.take(range(len(passages)))]
        theirs = bm25s.BM25()
        theirs.index(bm25s.tokenize(texts, stopwords="en", show_progress=False), show_progress=False)
        build_words(passages, Path("words"), Path("work"))
        ours = WordIndex.open(Path("words"))
        vectors = Vectors({"identity": "walks", "rows": len(texts), "width": 64}, [walks(len(texts), 64)])
        build_index(passages, vectors, IndexParams(full_text=True), Path("index"), Path("work-index"))
        reading = taking_turns({"read": partial(read, theirs, asked, len(texts))}, times)["read"]
        measured = []
        with PassageIndex.open(Path("index"), IndexParams(full_text=True), identity="walks") as milvus:
            for batch in (1, QUERIES):
                parts = [asked[start : start + batch] for start in range(0, len(asked), batch)]
                works = {
                    "harr": partial(each, parts, partial(by_words, ours)),
                    "bm25s": partial(each, parts, partial(as_it_comes, theirs)),
                    "Milvus Lite": partial(each, parts, partial(by_milvus, milvus)),
                }
                said: dict[str, Any] = {
                    "unit": "queries/s",
                    "count": float(len(asked)),
                    "limit": len(asked) / min(reading),
                }
                runs, what = taking_turns(works, times), f"words in {len(texts):,} texts, {batch} at once"
                measured += [row(what, runs, ours="harr", peer=peer, **said) for peer in list(works)[1:]]
    return measured


def each(parts: Sequence[list[str]], ask: Callable[[list[str]], object]) -> None:
    """Ask one part after the other."""
    for part in parts:
        ask(part)


def by_words(index: WordIndex, texts: Sequence[str]) -> None:
    """Ask like a policy that searches by words."""
    for text in texts:
        index.find_best(words_of(text), N)


def as_it_comes(index: "bm25s.BM25", texts: list[str]) -> None:
    """Ask as shown in the documentation of bm25s."""
    index.retrieve(bm25s.tokenize(texts, stopwords="en", show_progress=False), k=N, show_progress=False)


def by_milvus(index: PassageIndex, texts: list[str]) -> None:
    """Ask as the arm bm25 does, without cached hits."""
    index._text_hits.clear()
    index.search_text(texts, N)


def read(index: "bm25s.BM25", texts: Sequence[str], rows: int) -> None:
    """Read what any BM25 must read for these texts."""
    weights, starts, scores = index.scores["data"], index.scores["indptr"], np.ones(rows, dtype=np.float32)
    for text in texts:
        for word in index.get_tokens_ids(words_of(text)):
            weights[starts[word] : starts[word + 1]].sum()
        scores.sum()


def rollouts(times: int) -> list[dict[str, Any]]:
    """Compare rollouts of the quickstart's questions by the untrained retriever.

    The limit is the machine's products for the distinct states alone.
    """
    params = Params.load(ROOT / "params.yaml")
    with tempfile.TemporaryDirectory() as place, chdir(place):
        for stage in (download_corpus, embed_passages, index_passages):
            stage(params)
        questions = read_questions(QUESTIONS / "test.jsonl")[:ASKED]
        pipeline = build_pipeline(params.pipeline, params.generator, PLACES)
        generator = build_generator(params.generator, params.seed, PLACES)
        assert generator is not None  # the quickstart has a scripted one
        passages, vectors = Passages.open(CORPUS), Vectors.open(VECTORS)
        flat = faiss.IndexFlatIP(vectors.width)
        flat.add(vectors.take(np.arange(vectors.rows)))
        texts = passages.take(range(len(passages)))
        model = SentenceTransformer(str(find_folder(params.encoder.model)), device="cpu", local_files_only=True)
        with open_players(params, PLACES, questions, candidates="corpus") as player:
            policy = player(ARMS["history"], None)
            assert isinstance(policy, DensePolicy)
            works: dict[str, Callable[[], Any]] = {
                "harr": partial(play, questions, pipeline, policy, generator),
                "`play` of one question": lambda: [play([one], pipeline, policy, generator) for one in questions],
                "sentence-transformers, faiss, one at a time": lambda: [
                    alone(one, pipeline, policy, model, flat, texts, generator) for one in questions
                ],
            }
            runs, episodes = taking_turns(works, times), play(questions, pipeline, policy, generator)
            states = {step.retrieval.state for episode in episodes for step in episode.steps}
            tokens = float(policy.encoder.token_counts(list(states)).sum())
            same = [one.answer == found for one, found in zip(episodes, list(works.values())[-1](), strict=True)]
            print(f"{len(questions)} rollouts, {len(states)} distinct states, {sum(same)} answers equal one at a time")
    limit = len(questions) * flops() / (2 * layer_weights(model) * tokens)
    said: dict[str, Any] = {"unit": "questions/s", "count": float(len(questions)), "limit": limit}
    return [row(f"{ASKED} rollouts", runs, ours="harr", peer=peer, **said) for peer in list(works)[1:]]


def alone(
    question: Question,
    pipeline: Pipeline,
    policy: DensePolicy,
    model: SentenceTransformer,
    flat: "faiss.IndexFlatIP",
    passages: Sequence[Passage],
    generator: Generator,
) -> str | None:
    """Play one question as Search-R1 and FlashRAG do: a text, or a vector and a search, at a time."""
    moves = pipeline(question)
    answer: Any = None
    try:
        while True:
            request = moves.send(answer)
            if isinstance(request, Search):
                [state], _ = policy.write_states([request])
                _, rows = flat.search(model.encode([policy.prompt + state], show_progress_bar=False), policy.k)
                answer = Retrieval(tuple(passages[place] for place in rows[0]))
            else:
                [answer] = generator.complete([request])
    except StopIteration as end:
        return end.value.answer
