"""The small language model: its texts, its first induction head, and a run that is killed."""

import random
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from harr_demonstrations.choose import rows_of
from harr_encyclopaedia import scripted, small_lm
from harr_encyclopaedia.query_styles import examples
from harr_encyclopaedia.scripted import Scripted
from harr_encyclopaedia.traces import Oracle, game_of, open_world, practice, trace
from letters import nothing
from runs import go_on, same, weights

from harr.errors import ParamsError
from harr.io.files import finish
from harr.params.generator import TrainedParams
from harr.params.pipeline import ReactParams, RSearchParams, SearchR1Params
from harr.rag.rollout import play
from harr.types import Generate, Generator

TINY = small_lm.SmallLMParams(plays="r_search", steps=6, width=32, layers=2)
SECTION = TrainedParams(kind="trained", function="harr_encyclopaedia.small_lm:train_small_lm", max_tokens=8)


@cache
def tokenizer_of(plays: str) -> Any:
    """Trained once for all tests."""
    return small_lm._tokenizer(2600, plays)


class Planner(Scripted):
    """The teacher of R-Search."""

    def complete(self, requests: Sequence[Generate]) -> list[str]:
        """Its turns."""
        return [request.cut(scripted.plan(request.prompt)) for request in requests]


@pytest.mark.parametrize(("plays", "teacher"), [("search_r1", Scripted()), ("r_search", Planner())])
def test_the_teacher_answers_all_it_finds_and_nothing_else(plays: str, teacher: Generator) -> None:
    reader = open_world(7, hops=(1, 2, 3))
    game = game_of(plays, searches=3)
    found = play(reader.questions, game, Oracle(reader, random.Random(0), 3), teacher)
    assert all(episode.answer in episode.question.answers for episode in found)
    assert not any(episode.outcome.graph or episode.outcome.faults for episode in found)
    missed = play(reader.questions, game, Oracle(reader, random.Random(0), 3, missing=1.0), teacher)
    unknown = sum(episode.answer == "unknown" for episode in missed)
    assert unknown >= len(missed) - 1  # a namesake may have the same fact


@pytest.mark.parametrize("plays", ["r_search", "leret"])
@pytest.mark.parametrize("seed", range(2))
def test_a_text_in_pieces_has_the_tokens_of_the_whole(seed: int, plays: str) -> None:
    """What is learnt in pieces is met as one text when the model plays."""
    tokenizer = tokenizer_of(plays)
    reader = open_world(seed, hops=(3,))
    rng = random.Random(seed)
    if plays == "leret":
        traced = examples(open_world(seed, hops=(2,)), rng, 3)
    else:
        traced = trace(reader.questions[0], Oracle(reader, rng, 3, missing=0.3), plays)
    for pieces in (traced, practice(reader, rng, 2, plays)):
        ids, _ = small_lm._encode(tokenizer, pieces)
        whole = "".join(text for text, _ in pieces)
        assert ids == tokenizer(whole)["input_ids"]
        assert tokenizer.decode(ids, clean_up_tokenization_spaces=False) == whole


def test_a_killed_run_ends_with_the_same_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changes = {"TOKENS_PER_STEP": 1024, "SAVE_EVERY": 2, "TESTED": 1}
    for name, value in (changes | {"_tokenizer": lambda vocabulary, plays: tokenizer_of(plays)}).items():
        monkeypatch.setattr(small_lm, name, value)

    def run(name: str, log: Any) -> dict[str, float]:
        return small_lm.train(TINY, SECTION, 3, tmp_path / name, tmp_path / "work", log, 0)

    whole = run("a", nothing)
    finish(tmp_path / "work")
    resumed = go_on(lambda log: run("b", log), 3)
    assert whole["tokens"] == resumed["tokens"] > 0
    assert same(weights(tmp_path / "a"), weights(tmp_path / "b")), "also the model it began from"
    learnt, began = weights(tmp_path / "a"), weights(tmp_path / "a/base")
    assert not torch.equal(began["./model.embed_tokens.weight"], learnt["./model.embed_tokens.weight"])
    assert not any(bias.any() for name, bias in learnt.items() if name.endswith("o_proj.bias")), "vLLM passes over it"


def test_it_plays_the_pipeline_that_it_was_taught_and_no_other() -> None:
    for plays, pipeline, line in (
        ("search_r1", ReactParams(name="react"), "plays search_r1, not react; set generator.settings.plays"),
        ("search_r1", SearchR1Params(name="search_r1"), "never saw the instructions of pipeline.template plain"),
        ("r_search", RSearchParams(name="r_search", tools=("News",), template="bare"), "asks General, News, Academy"),
    ):
        with pytest.raises(ParamsError, match=line):
            small_lm.check_pipeline(plays, pipeline)
    small_lm.check_pipeline("r_search", RSearchParams(name="r_search", template="bare"))


@pytest.mark.parametrize("plays", ["search_r1", "r_search"])
def test_an_episode_becomes_the_trace_that_a_warm_start_would_learn(plays: str) -> None:
    reader = open_world(0, hops=(1,))
    says = scripted.plan if plays == "r_search" else scripted.turn
    teacher: Any = SimpleNamespace(complete=lambda asked: [one.cut(says(one.prompt)) for one in asked])
    question = reader.questions[0]
    [episode] = play([question], game_of(plays, 1), Oracle(reader, random.Random(0), k=2), teacher)
    [row] = rows_of(episode)
    wanted = trace(question, Oracle(reader, random.Random(0), k=2), plays)
    assert [*map(tuple, row["pieces"])] == [*map(tuple, wanted)]
    assert any(own and text.endswith("</search>") for text, own in row["pieces"])
