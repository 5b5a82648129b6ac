"""`harr demonstrations` in a project: a teacher plays, and what it wrote is read by a warm start."""

import json
from pathlib import Path

import pytest
import yaml

from harr.errors import CorpusError
from harr.io.jsonl import read_rows
from harr.params import Params
from harr.params.generator import LocalParams, ServerParams
from tasks.demonstrations import Teaching, asked_as, teacher_of, write_demonstrations
from tasks.download import download_corpus
from tasks.embed import embed_passages
from tasks.index import index_passages
from tasks.paths import LLM, QUESTIONS

WORLD = {"dataset": "world", "passages": 200, "train_questions": 8, "test_questions": 2, "hops": [1], "seed": 0}
CHANGES = {
    "download": WORLD,
    "pipeline": {"name": "search_r1", "max_searches": 1, "template": "bare"},
    "generator": {"kind": "warmstart", "model": "m", "demonstrations": "best.jsonl"},
    "reward": {"terms": {"answer_f1": 1.0}},
    "filter": {"target": 8, "group_size": 4},
    "train": {"method": "agent", "steps": 1},
    "evaluate": {"arms": ["base", "full"], "resamples": 100},
}


@pytest.fixture
def params(workplace: Path) -> Params:
    Path("params.yaml").write_text(yaml.safe_dump(yaml.safe_load(Path("params.yaml").read_text()) | CHANGES))
    return Params.load()


def test_the_best_episodes_of_a_teacher_are_written(params: Params) -> None:
    for task in (download_corpus, embed_passages, index_passages):
        task.fn(params)
    teacher = teacher_of(params, "scripted", "", "", 0.7, 64)
    told = write_demonstrations(params, teacher, Teaching(samples=2, each=2), None, Path("best.jsonl"))
    rows = [row.values for row in read_rows(Path("best.jsonl"))]
    assert 1 <= len(rows) <= 8 and len({row["question"] for row in rows}) == len(rows), "the same twice is one"
    assert "duplicates" in told[1] and told[0].startswith(f"{len(rows)} of 16 episodes kept")
    for row in rows:
        assert row["reward"] >= 0.9 and [own for _, own in row["pieces"]] == [False, True] * 2
        assert row["pieces"][0][0].startswith("Question: ") and row["pieces"][-1][0].endswith("</answer>")
        assert "<information>" in row["pieces"][2][0]
    with pytest.raises(CorpusError, match=r"best\.jsonl exists and is left as it is"):
        write_demonstrations(params, teacher, Teaching(), None, Path("best.jsonl"))
    with pytest.raises(CorpusError, match=r"none of 8 episodes is worth learning \(8 reward\); lower --at-least"):
        write_demonstrations(params, teacher, Teaching(samples=1, at_least=2.0), None, Path("none.jsonl"))
    asked = {json.loads(line)["id"] for line in (QUESTIONS / "test.jsonl").read_text().splitlines()}
    with pytest.raises(CorpusError, match=rf"\({len(asked)} leaks: a question of validation or test\)"):
        write_demonstrations(params, teacher, Teaching(samples=1), QUESTIONS / "test.jsonl", Path("none.jsonl"))
    assert not Path("none.jsonl").exists()


def test_who_teaches(params: Params) -> None:
    server = teacher_of(params, "big", "http://127.0.0.1:9/v1", "", 0.7, 64)
    assert isinstance(server, ServerParams) and (server.model, server.temperature, server.max_tokens) == (
        "big",
        0.7,
        64,
    )
    assert asked_as(params, server).template == "plain", "it was never taught the form"  # type: ignore[union-attr]
    framed = teacher_of(params, "big", "http://127.0.0.1:9/v1", "big", 0.7, 64)
    assert asked_as(params, framed).template == "chat"  # type: ignore[union-attr]
    LLM.mkdir(parents=True)
    (LLM / "config.json").touch()
    own = teacher_of(params, "", "", "", 0.7, 64)
    assert isinstance(own, LocalParams) and own.model == str(LLM)
    assert asked_as(params, own) == params.pipeline
