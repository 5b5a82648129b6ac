"""From names in params.yaml to players that search: dense, sparse, hybrid."""

from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from tiny import tiny_encoder

from harr.arms import ARMS
from harr.builders.places import Places
from harr.builders.players import open_players
from harr.builders.retrievers import search_identity
from harr.builders.setup import open_setup
from harr.corpus.passages import write_questions
from harr.corpus.vectors import Vectors
from harr.errors import ParamsError
from harr.params import Params
from harr.rag.policies.dense import DensePolicy
from harr.rag.retrieval.bm25 import BM25Retriever
from harr.rag.retrieval.hybrid import Fusion, HybridRetriever
from harr.rag.setup import Setup
from harr.types import Search

RECIPE = yaml.safe_load((Path(__file__).parents[3] / "recipes/smoke.yaml").read_text())


AGENT = {
    "train": {"method": "agent"},
    "pipeline": {"name": "search_r1"},
    "generator": {"kind": "local", "model": "models/mine"},
    "filter": {"keep": "all"},
    "evaluate": {"arms": ["base", "trained"]},
}


def params(sections: dict[str, object] | None = None, **retriever: object) -> Params:
    section = {"k": 4, "pool": 8, "max_tokens": 64, **retriever}
    encoder = {"model": tiny_encoder(), "max_tokens": 64}
    return Params.model_validate(RECIPE | {"encoder": encoder, "retriever": section} | (sections or {}))


@pytest.fixture
def places(corpus, tmp_path: Path) -> Places:  # type: ignore[no-untyped-def]
    own, made = tmp_path / "work", ("corpus", "vectors", "index", "tables")
    return Places(*(corpus.folder / name for name in made), own / "generator", own / "texts", own / "searches")


def test_a_run_in_which_another_player_learns_searches_as_params_say(corpus, places: Places, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    searches = [Search(question, question.text) for question in corpus.questions]
    write_questions(corpus.questions, tmp_path / "questions.jsonl")
    for search, kind in (("dense", DensePolicy), ("sparse", BM25Retriever), ("hybrid", HybridRetriever)):
        run_params = params(AGENT, search=search)
        with open_setup(run_params, places, tmp_path / "questions.jsonl") as setup:
            assert isinstance(setup.retriever, kind)
            assert setup.generator is None and setup.language_model == "models/mine"
            found = setup.retriever.retrieve(searches)
        with open_players(run_params, places, corpus.questions, candidates="corpus") as player:
            assert isinstance(player(ARMS["base"], None), kind) and isinstance(player(ARMS["trained"], tmp_path), kind)
        count = 2 if search == "sparse" else 4  # two of the 40 passages name the town
        assert all(len({passage.id for passage in one.passages}) == count for one in found)
        assert all(one.pool == () and one.logprob is None for one in found)


def test_training_is_given_validation_questions_where_it_validates(corpus, places: Places, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    asked, validation = tmp_path / "questions.jsonl", tmp_path / "validation.jsonl"
    write_questions(corpus.questions[:12], asked)
    write_questions([*corpus.questions[12:], replace(corpus.questions[0], id="bare", candidate_ids=())], validation)
    download = RECIPE["download"] | {"validation_questions": 9}
    run_params = params({"download": download, "train": RECIPE["train"] | {"validation": {"every": 5}}})

    def opened(run_params: Params, **more: Path) -> Setup:
        with open_setup(run_params, places, asked, **more) as setup:
            return setup

    setup, plain = opened(run_params, validation=validation), opened(run_params)
    assert len(setup.validation) == 9 and not set(setup.validation) & set(setup.questions)
    assert not plain.validation and plain.identity != setup.identity, "other unfinished work"
    never = params({"train": RECIPE["train"] | {"validation": {"every": 0}}})
    assert opened(never, validation=validation).identity == opened(never).identity
    given = params(
        {"download": download, "train": RECIPE["train"] | {"validation": {"every": 5}}}, candidates="question"
    )
    assert len(opened(given, validation=validation).validation) == 8, "one brings no passages"
    write_questions([], validation)
    with pytest.raises(ParamsError, match=r"validation.every 5: .* holds no question to play"):
        opened(run_params, validation=validation)


def test_arms_rank_by_their_own_search_whatever_the_pool_is(corpus, places: Places) -> None:  # type: ignore[no-untyped-def]
    """``bm25`` and ``hybrid`` search as their names say; the pool of ``frozen`` follows retriever.search."""
    run_params = params({"evaluate": {"arms": ["bm25", "frozen", "hybrid"]}}, search="sparse", fusion="rrf")
    with open_players(run_params, places, corpus.questions, candidates="corpus") as player:
        hybrid = player(ARMS["hybrid"], None)
        assert isinstance(hybrid, HybridRetriever) and hybrid.fusion == Fusion(1.0, 1.0, offset=61)
        assert isinstance(hybrid.dense, DensePolicy) and hybrid.dense.fusion == Fusion()
        assert isinstance(player(ARMS["bm25"], None), BM25Retriever)
        frozen = player(ARMS["frozen"], None)
        assert isinstance(frozen, DensePolicy) and frozen.fusion == Fusion(0.0, 1.0)


def test_a_retriever_of_another_package_is_part_of_the_game(corpus, places: Places, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    """It wraps the usual retriever; its name and settings change the identities of the game and of what is searched."""
    asked, index = tmp_path / "questions.jsonl", Vectors.open(places.vectors).identity
    write_questions(corpus.questions, asked)
    with open_setup(params(AGENT), places, asked) as setup:
        assert setup.index == index
    identities = {setup.identity}
    for settings in ({}, {"k": 2}):
        run_params = params(AGENT, function="by_hand:Backwards", settings=settings)
        with open_setup(run_params, places, asked) as setup:
            assert type(setup.retriever).__name__ == "Backwards" and isinstance(setup.retriever.base, DensePolicy)
            assert setup.index == search_identity(index, run_params.retriever) != index
        identities.add(setup.identity)
        with open_players(run_params, places, corpus.questions, candidates="corpus") as player:
            assert type(player(ARMS["base"], None)).__name__ == "Backwards"
    assert len(identities) == 3
    wrong = params(AGENT, function="builtins:repr")
    with pytest.raises(ParamsError, match=r"retriever\.function: builtins:repr makes str without a method retrieve"):
        open_setup(wrong, places, asked).__enter__()
