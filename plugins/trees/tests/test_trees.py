"""Boosted trees learn from gold passages which features count, and rank the same when they are read again."""

import shutil
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from functools import partial
from pathlib import Path

import lightgbm
import numpy as np
import pytest
import yaml
from harr_links.links import FEATURES, Links
from harr_trees import stacked
from harr_trees.boosted import Examples, Recorder, check_gold, grow_trees, train
from harr_trees.scorer import COLUMNS, TREES, Trees, describe_candidates
from letters import nothing
from shelves import graph_of

import harr
from harr.builders.encoder import trained_encoder
from harr.builders.players import open_players
from harr.corpus.passages import read_questions
from harr.errors import CorpusError, ModelError
from harr.merge.retriever import ExportedTower, merge
from harr.params import Params
from harr.params.embed import EncoderParams
from harr.params.train import ArmTrainParams, FunctionTrainParams, GRPOParams
from harr.rag.pipelines.pick import pick
from harr.rag.policies.dense import DensePolicy
from harr.rag.policies.encoder_adapter import LAYERS
from harr.rag.policies.link_features import Candidates, LinkFeatures
from harr.rag.rollout import play
from harr.rag.setup import Setup
from harr.train import grpo
from harr.types import Episode, Question, Search
from tasks.merge import export_arm
from tasks.paths import ADAPTER, ARMS, PLACES, QUESTIONS

PARAMS = FunctionTrainParams(method="function", function="harr_trees.boosted:METHOD", learns="retriever")
GRPO = GRPOParams(
    method="grpo", steps=2, questions_per_step=4, group_size=4, optimizer={"learning_rate": 1e-2}, lora={"rank": 8}
)


@pytest.fixture
def game(setup: Setup, corpus) -> Setup:  # type: ignore[no-untyped-def]
    """Pick a passage by links: each question names a town and has its summer's words; gold is the winter's passage."""
    graph = graph_of(setup.policy.passages, corpus.folder / "tables")
    links = Links(graph, words=4, titled=4, linked=4, naming=2, followed=2, neighbours=2)
    policy = replace(setup.policy, link_features=LinkFeatures(links, setup.policy.temperature))
    questions = [
        replace(one, text=f"Is {one.id.removeprefix('q-')} warm and full of fruit?") for one in setup.questions
    ]
    return replace(setup, questions=questions, retriever=policy, pipeline=partial(pick, picks=1))


def found_gold(game: Setup, retriever) -> list[Episode]:  # type: ignore[no-untyped-def]
    """The episodes of all questions that picked their gold."""
    episodes = play(game.questions, game.pipeline, retriever, None)
    return [
        one for one in episodes if set(one.question.gold_ids) <= {p.id for s in one.steps for p in s.retrieval.passages}
    ]


def test_trees_learn_what_the_vectors_get_wrong_and_the_encoder_stays(game: Setup, tiny: str, tmp_path: Path) -> None:
    taught = replace(game, questions=game.questions[:12], validation=game.questions[12:16])
    rows = train(PARAMS, taught, tmp_path / "adapter", tmp_path / "work", nothing, 0)
    assert [row["reward_mean"] for row in rows] == [1.0, 1.0] and rows[1]["searches"] == 2 * rows[0]["searches"] == 24
    policy = game.policy.greedy()
    trees = Trees.load(policy.link_features.links, tmp_path / "adapter")  # type: ignore[union-attr]
    assert len(found_gold(game, policy)) < 5 and len(found_gold(game, replace(policy, link_features=trees))) == 20
    again = train(PARAMS, taught, tmp_path / "again", tmp_path / "work", nothing, 0)
    assert again[1]["trees"] == rows[1]["trees"]
    assert (tmp_path / "again" / TREES).read_bytes() == (tmp_path / "adapter" / TREES).read_bytes()
    section = EncoderParams(model=tiny, max_tokens=64)
    after = trained_encoder(section, tmp_path / "adapter").encode(["a state"])
    assert np.array_equal(after, game.policy.encoder.encode(["a state"]))
    tower = ExportedTower(game.policy.encoder, "", tmp_path / "adapter")
    assert merge(tower, tmp_path / "merged", tmp_path / "work", min_cosine=0.9999, facts={})["cosine_min"] > 0.9999
    assert (tmp_path / "merged" / TREES).read_bytes() == (tmp_path / "adapter" / TREES).read_bytes()


def test_without_validation_a_tenth_of_the_questions_chooses_the_number_of_trees(game: Setup, tmp_path: Path) -> None:
    rows = train(PARAMS, game, tmp_path / "adapter", tmp_path / "work", nothing, 0)
    assert rows[0]["searches"] == 18


def test_stacked_trees_learn_from_scores_of_the_encoder_that_learnt_from_other_questions(
    game: Setup, tiny: str, tmp_path: Path
) -> None:
    game = replace(game, questions=game.questions[:12], validation=game.questions[12:16])
    base = game.policy.encoder.encode(["a state"])
    arm = ArmTrainParams.of(GRPO, "harr_trees.stacked:METHOD", {})
    rows = stacked.train(arm, game, tmp_path / "both", tmp_path / "work", nothing, 0)
    assert [row["searches"] for row in rows] == [12, 24] and np.array_equal(
        game.policy.encoder.encode(["a state"]), base
    )

    def learn(name: str, questions: Sequence[Question]) -> DensePolicy:
        """The policy that GRPO alone makes of these questions."""
        term = LinkFeatures(game.policy.link_features.links, game.policy.temperature)  # type: ignore[union-attr]
        policy = replace(game.policy, encoder=deepcopy(game.policy.encoder), link_features=term, _cache={})
        run = replace(game, questions=questions, retriever=policy, identity=name)
        grpo.train(GRPO, run, tmp_path / name, tmp_path / "alone", nothing, 0)
        encoder = trained_encoder(EncoderParams(model=tiny, max_tokens=64), tmp_path / name)
        return replace(policy, encoder=encoder, sampling=None, frozen=True, _cache={})

    halves = game.questions[::2], game.questions[1::2]
    learnt = [learn(f"half-{number}", half) for number, half in enumerate(halves)]
    kept = game.validation, learn("every", game.questions)
    crossed, naive = (
        grow_trees(GRPO, game, list(zip(halves, order, strict=True)), kept, nothing, 0)[0]
        for order in (learnt[::-1], learnt)
    )
    text = (tmp_path / "both" / TREES).read_text()
    assert text == crossed.booster.model_to_string() != naive.booster.model_to_string()
    names = {path.name for path in (tmp_path / "both").iterdir()}
    assert names == {"adapter_config.json", "adapter_model.safetensors", "harr.json", "sha256sums.txt", TREES}
    section = EncoderParams(model=tiny, max_tokens=64)
    served, alone, half = (
        trained_encoder(section, tmp_path / name).encode(["a state"]) for name in ("both", "every", "half-0")
    )
    assert np.array_equal(served, alone) and not np.array_equal(served, half)


def test_the_columns_of_a_candidate_are_its_features_and_its_place_by_cosine() -> None:
    cosines_BN = np.array([[0.5, 0.75, -np.inf], [0.25, 0.0, 0.125]], dtype=np.float32)
    features_BNF = np.arange(6 * len(FEATURES), dtype=np.float32).reshape(2, 3, len(FEATURES))
    question = Question("q", "Who?")
    searches = [Search(question, "Who?"), Search(question, "Who?", (), frozenset({"a", "b"}))]
    table_BNC = describe_candidates(Candidates(searches, np.zeros((2, 3), dtype=np.int64), cosines_BN, features_BNF))
    assert table_BNC.shape == (2, 3, len(COLUMNS)) and np.array_equal(table_BNC[..., : len(FEATURES)], features_BNF)
    assert table_BNC[0, :2, -4:].tolist() == [[0.5, 0.25, 0.5, 0.0], [0.75, 0.0, 1.0, 0.0]]
    assert table_BNC[1, 2, -4:].tolist() == [0.125, 0.125, 0.5, 2.0]


def test_gold_comes_first_and_a_picked_one_is_no_label(game: Setup) -> None:
    links, gold = game.policy.link_features.links, {"a": 7, "b": 3}  # type: ignore[union-attr]
    recorder = Recorder(links, gold, None)
    search = Search(Question("q", "Who?", (), ("a", "b")), "Who?", (), frozenset({"b"}))
    pool_BN, cosines_BN = np.array([[5, 7, -1]]), np.array([[0.9, -0.5, -np.inf]], dtype=np.float32)
    features_BNF = np.zeros((1, 3, len(FEATURES)), dtype=np.float32)
    scores_BN = recorder.score(Candidates([search], pool_BN, cosines_BN, features_BNF))
    assert scores_BN.tolist() == [[pytest.approx(0.9), 3.5, -np.inf]]
    assert [labels.tolist() for labels in recorder.examples.labels] == [[0, 1]]
    assert [table.shape for table in recorder.examples.tables] == [(2, len(COLUMNS))]


def test_nothing_to_learn_from_and_other_trees_are_refused(game: Setup, tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="none of 1 training questions has gold passages"):
        check_gold([Question("q", "Who?", ("Ada",))])
    with pytest.raises(CorpusError, match=r"no search .* had gold among its candidates.*; raise retriever\.pool"):
        Examples([np.zeros((2, len(COLUMNS)), dtype=np.float32)], [np.zeros(2, dtype=np.int8)]).dataset()
    table, gold = [np.zeros((2, len(COLUMNS)), dtype=np.float32)], [np.array([1, 0], dtype=np.int8)]
    with pytest.raises(CorpusError, match="no search of the validation questions had gold"):
        Examples().dataset(reference=Examples(table, gold).dataset())
    with pytest.raises(CorpusError, match="one training question with gold passages is too few"):
        train(PARAMS, replace(game, questions=game.questions[:1]), tmp_path / "a", tmp_path / "w", nothing, 0)
    links = game.policy.link_features.links  # type: ignore[union-attr]
    (tmp_path / TREES).write_text("tree\nversion=v4\n")
    with pytest.raises(ModelError, match=r"trees.txt holds no trees of LightGBM .*; train again"):
        Trees.load(links, tmp_path)
    train(PARAMS, game, tmp_path / "adapter", tmp_path / "work", nothing, 0)
    text = (tmp_path / "adapter" / TREES).read_text()
    (tmp_path / TREES).write_text(text.replace("cosine_rank", "other_rank"))
    with pytest.raises(ModelError, match="asks for other columns than this version of harr computes; train again"):
        Trees.load(links, tmp_path)


def test_a_merged_model_of_trees_finds_what_it_finds_within_harr(here: Path) -> None:
    settings = yaml.safe_load(Path("params.yaml").read_text())
    settings["evaluate"] = {"arms": [{"name": "boosted", "method": "harr_trees.boosted:METHOD"}, "trained"], "seeds": 1}
    Path("params.yaml").write_text(yaml.safe_dump(settings))
    params, folder = Params.load(), ARMS / "boosted-0"
    shutil.copytree(ADAPTER, folder)
    (folder / LAYERS).unlink()
    rng = np.random.default_rng(0)
    data = lightgbm.Dataset(rng.normal(size=(200, len(COLUMNS))), rng.normal(size=200), feature_name=list(COLUMNS))
    (folder / TREES).write_text(lightgbm.train({"num_leaves": 7, "verbose": -1}, data, 5).model_to_string())
    export_arm(params, "boosted", Path("boosted"))
    asked = [Search(question, question.text) for question in read_questions(QUESTIONS / "test.jsonl")[:6]]
    with open_players(params, PLACES, [], candidates="corpus") as player:
        within = player(params.evaluate.arm_table["boosted"], folder).retrieve(asked)
        plain = player(params.evaluate.arm_table["trained"], ADAPTER).retrieve(asked)
    with harr.Retriever.load("boosted", index=".") as retriever:
        assert isinstance(retriever.policy.link_features, Trees)  # type: ignore[attr-defined]
        found = [[passage.id for passage in one] for one in retriever.search(asked)]
    assert found == [[passage.id for passage in one.passages] for one in within]
    assert found != [[passage.id for passage in one.passages] for one in plain]
