"""LeReT through its tasks: the page of preferences, its scores, and each arm's model and prompt."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import styled
from encyclopaedia import PLAYER
from harr_encyclopaedia.traces import open_world
from styled import Styled, Words

from harr.builders.generators import build_reader
from harr.builders.retrievers import search_identity
from harr.errors import IndexMismatch
from harr.evaluate.play import Game
from harr.io.files import read_json, write_json
from harr.params import Params
from harr.params.generator import FunctionGeneratorParams
from harr.rag.pipelines.leret import LeReT
from tasks.paths import PLACES
from tasks.play import arm_pipelines
from tasks.trained_runs import trained_runs

SCRIPTED = FunctionGeneratorParams(**PLAYER)

PARAMS = Params.model_validate(
    {
        "download": {"dataset": "jsonl", "passages": ["p"], "train": ["t"], "test": ["t"]},
        "pipeline": {"name": "leret", "template": "bare"},
        "generator": {"kind": "local", "model": "m"},
        "train": {"method": "leret"},
        "evaluate": {"arms": ["base", "few_shot", "sft", "trained"], "seeds": 2},
    }
)


@pytest.fixture
def sampled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with data/filtered, made by the teacher."""
    monkeypatch.chdir(tmp_path)
    styled.sampled(Path("data/filtered"))
    return tmp_path


def vectors_are(identity: str) -> None:
    write_json(Path("data/vectors/manifest.json"), {"identity": identity, "rows": 1, "dtype": "float32"})


def test_answers_are_scored_where_there_is_a_reader() -> None:
    """A play is answered correctly exactly if it found all gold."""
    world, program = open_world(3, hops=(2,)), LeReT(2, template="bare")
    game = Game("trained-0", program, Words(world), Styled(1.0))
    episodes = game.play(world.questions, batch_size=9)
    assert not any("answer_em" in row for row in game.rows(episodes, [{}] * len(episodes)))
    read = replace(game, reader=build_reader(SCRIPTED, 0, PLACES)).play(world.questions, batch_size=9)
    rows = game.rows(read, [{}] * len(read))
    assert all("ap_after_2" in row for row in rows)
    assert 0 < sum(row["answer_em"] for row in rows) < len(rows)
    assert [row["answer_em"] for row in rows] == [row["all_gold"] for row in rows]


def test_an_arm_has_its_own_prompt_and_model(sampled: Path) -> None:
    vectors_are("index-1")
    pipelines: Any = arm_pipelines(PARAMS)
    assert [bool(pipelines[arm].demonstrations) for arm in PARAMS.evaluate.arms] == [False, True, False, False]
    runs = trained_runs(PARAMS)
    assert runs["trained"] == [Path("models/adapter"), Path("models/arms/trained-1")]
    assert runs["sft"] == [Path("models/adapter/sft"), Path("models/arms/trained-1/sft")]
    assert set(runs) == {"trained", "sft"}


@pytest.mark.fault(38)
def test_another_index_or_retriever_than_was_sampled_with_is_refused(sampled: Path) -> None:
    """New vectors, an added retriever from another package, and other settings of it."""
    vectors_are("index-2")
    with pytest.raises(IndexMismatch, match="was sampled with index index-1, but this one is index-2"):
        arm_pipelines(PARAMS)
    vectors_are("index-1")
    own, path = {"function": "by_hand:Backwards", "settings": {"k": 2}}, Path("data/filtered/manifest.json")
    late = PARAMS.model_copy(update={"retriever": PARAMS.retriever.model_copy(update=own)})
    with pytest.raises(IndexMismatch, match="was sampled with index index-1, but this one is"):
        arm_pipelines(late)
    write_json(path, read_json(path) | {"index": search_identity("index-1", late.retriever)})
    assert set(arm_pipelines(late)) == set(PARAMS.evaluate.arms)
    other = late.model_copy(update={"retriever": late.retriever.model_copy(update={"settings": {}})})
    again = r"was sampled with index .*, but this one is .*; run `dvc repro -f -s filter`"
    with pytest.raises(IndexMismatch, match=again):
        arm_pipelines(other)
