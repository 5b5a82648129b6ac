"""A corpus whose passages name their sources: one collection per source, and players that search them."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import yaml
from encyclopaedia import encyclopaedia

from harr.arms import ARMS
from harr.builders.players import open_players
from harr.builders.setup import open_setup
from harr.corpus.passages import Passages, read_questions, write_passages
from harr.corpus.vectors import Vectors
from harr.datasets.download import download
from harr.embed.encoder import Encoder
from harr.embed.shards import embed_corpus
from harr.errors import IndexMismatch
from harr.index.build import build_index
from harr.index.passage_index import PassageIndex
from harr.io.files import SUMS, read_json
from harr.params import Params
from harr.params.download import FunctionDatasetParams
from harr.params.embed import EmbedParams
from harr.params.index import IndexParams
from harr.rag.sources.router import Sources
from harr.services.milvus_client import connect
from harr.types import Passage, Search
from tasks.paths import CORPUS, INDEX, PLACES, QUESTIONS, VECTORS, WORK

RECIPE = yaml.safe_load((Path(__file__).parents[4] / "recipes/r_search_small.yaml").read_text())
OWN = {"General": {"kind": "milvus"}, "News": {"kind": "milvus"}, "All": {"kind": "milvus", "collection": "corpus"}}


@pytest.fixture(scope="module")
def place(tiny: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The current folder with a world of 200 passages that name sources: downloaded, embedded and indexed."""
    folder = tmp_path_factory.mktemp("sourced")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        settings = {"passages": 200, "train_questions": 4, "test_questions": 4, "hops": [2], "sources": True}
        world = FunctionDatasetParams(**encyclopaedia(**settings))
        download(world, CORPUS, QUESTIONS, WORK / "download")
        passages = Passages.open(CORPUS)
        encoder = Encoder(tiny, max_tokens=64)
        embed_corpus(passages, encoder, EmbedParams(dtype="float32"), VECTORS, WORK / "embed")
        figures = build_index(passages, Vectors.open(VECTORS), IndexParams(), INDEX, WORK / "index")
        sizes = {name: len(passages.searchable_rows(name)) for name in passages.sources}
        assert {name: figures[f"indexed_{name}"] for name in sizes} == sizes and sum(sizes.values()) == 200
        yield folder


def params(tiny: str, sources: dict[str, object], **changes: object) -> Params:
    encoder = {"model": tiny, "max_tokens": 64}
    retriever = {"k": 3, "pool": 8, "max_tokens": 64, "search": "hybrid"}
    writes = {"generator": {"kind": "local", "model": "none"}, "evaluate": {"arms": ["base", "trained"]}}
    game = {"sources": sources, "pipeline": {"name": "r_search", "tools": list(sources)}}
    return Params.model_validate(RECIPE | {"encoder": encoder, "retriever": retriever} | writes | game | changes)


def test_the_bytes_of_a_corpus_without_sources_are_those_of_ever(tmp_path: Path) -> None:
    plain = [Passage("a", "text", "title"), Passage("b", "more")]
    # the identity of these two before passages had sources
    assert write_passages(plain, tmp_path / "plain")["identity"] == "cdb0d7349c2c36b1"
    sourced = [Passage("a", "text", "title", "News"), Passage("b", "more", source="General")]
    write_passages(sourced, tmp_path / "sourced", searchable=lambda passage: passage.id != "b")
    stored = Passages.open(tmp_path / "sourced")
    assert stored.take([1, 0]) == sourced[::-1] and stored.sources == ("News",)
    assert Passages.open(tmp_path / "plain").take([0, 1]) == plain and Passages.open(tmp_path / "plain").sources == ()


@pytest.mark.usefixtures("place")
def test_every_tool_searches_its_own_passages(tiny: str) -> None:
    questions = read_questions(QUESTIONS / "test.jsonl")
    with open_players(params(tiny, OWN), PLACES, questions, candidates="corpus") as player:
        retriever = player(ARMS["trained"], None)
        assert isinstance(retriever, Sources)
        searches = [Search(q, q.text, tool=tool) for q in questions for tool in ("News", "General", "All", "Banana")]
        found = retriever.retrieve(searches)
        for search, retrieval in zip(searches, found, strict=True):
            if search.tool == "Banana":
                assert retrieval.error and not retrieval.passages
                continue
            assert len(retrieval.passages) == 3 and not retrieval.error
            assert search.tool == "All" or {p.source for p in retrieval.passages} == {search.tool}
        taken = frozenset(passage.id for passage in found[0].passages)
        [again] = retriever.retrieve([Search(questions[0], questions[0].text, exclude_ids=taken, tool="News")])
        assert len(again.passages) == 3 and taken.isdisjoint(passage.id for passage in again.passages)
    identities = []
    for sources in (OWN, {"General": OWN["General"]}):
        with open_setup(params(tiny, sources), PLACES, QUESTIONS / "test.jsonl") as setup:
            assert isinstance(setup.retriever, Sources)
            identities.append(setup.identity)
    assert len(set(identities)) == 2


@pytest.mark.usefixtures("place")
def test_a_source_that_the_corpus_lacks_or_lost_is_named(tiny: str) -> None:
    with (
        pytest.raises(IndexMismatch, match=r"sources\.Law: .* its corpus has the sources Academy, General, News; cor"),
        open_setup(params(tiny, {"Law": {"kind": "milvus"}}), PLACES, QUESTIONS / "test.jsonl"),
    ):
        pass
    identity = Vectors.open(VECTORS).identity
    name = read_json(INDEX / "manifest.json")["sources"]["News"]["collection"]
    with closing(connect(IndexParams(), str(INDEX / "milvus.db"))) as client:
        client.drop_collection(name)
    (INDEX / SUMS).unlink()  # as after a server lost it: no file's hash shows it
    with pytest.raises(IndexMismatch, match=f"has no collection {name}"):
        PassageIndex.open(INDEX, IndexParams(), identity=identity)
