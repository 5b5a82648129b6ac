"""`harr demonstrations` in a project: a teacher plays, and what it wrote is read by a warm start."""

import json
from pathlib import Path
from typing import Any

import pytest
from harr_demonstrations.write import Teaching, teacher_of, teacher_pipeline, write_demonstrations
from stages import world_params

from harr.corpus.passages import read_questions, write_questions
from harr.errors import CorpusError
from harr.io.jsonl import read_rows
from harr.params import Params
from harr.params.generator import LocalParams, ServedParams
from tasks.paths import LANGUAGE_MODEL, QUESTIONS

SECTIONS: dict[str, Any] = {
    "pipeline": {"name": "search_r1", "max_searches": 1, "template": "bare"},
    "generator": {"kind": "local", "model": "m", "warmstart": {"demonstrations": "best.jsonl"}},
    "reward": {"terms": {"answer_f1": 1.0}},
    "filter": {"target": 8, "group_size": 4},
    "train": {"method": "agent", "steps": 1},
    "evaluate": {"arms": ["base", "trained"], "resamples": 100},
}


@pytest.fixture
def params(place: Path, tiny: str) -> Params:
    """What a warm start reads is not there yet."""
    return world_params(tiny, **SECTIONS)


def test_the_best_episodes_of_a_teacher_are_written(params: Params) -> None:
    teacher = teacher_of(params, "harr_encyclopaedia.scripted:Scripted", "", "", 0.7, 64)
    easy = [question for question in read_questions(QUESTIONS / "train.jsonl") if len(question.gold_ids) == 1][:8]
    write_questions(easy, Path("easy.jsonl"))
    lines = write_demonstrations(params, teacher, Teaching(samples=2, each=2), Path("easy.jsonl"), Path("best.jsonl"))
    rows = [row.values for row in read_rows(Path("best.jsonl"))]
    assert 1 <= len(rows) <= len(easy) and len({row["question"] for row in rows}) == len(rows), "the same twice is one"
    assert "duplicates" in lines[1] and lines[0].startswith(f"{len(rows)} of {2 * len(easy)} episodes kept")
    for row in rows:
        assert row["reward"] >= 0.9 and [own for _, own in row["pieces"]] == [False, True] * 2
        assert row["pieces"][0][0].startswith("Question: ") and row["pieces"][-1][0].endswith("</answer>")
        assert "<information>" in row["pieces"][2][0]
    with pytest.raises(CorpusError, match=r"best\.jsonl exists and is left as it is"):
        write_demonstrations(params, teacher, Teaching(), Path("easy.jsonl"), Path("best.jsonl"))
    with pytest.raises(
        CorpusError, match=rf"none of {len(easy)} episodes is worth learning \({len(easy)} reward\); lower --at-least"
    ):
        write_demonstrations(params, teacher, Teaching(samples=1, at_least=2.0), Path("easy.jsonl"), Path("none.jsonl"))
    asked = {json.loads(line)["id"] for line in (QUESTIONS / "test.jsonl").read_text().splitlines()}
    with pytest.raises(CorpusError, match=rf"\({len(asked)} leaks: a question of validation or test\)"):
        write_demonstrations(params, teacher, Teaching(samples=1), QUESTIONS / "test.jsonl", Path("none.jsonl"))
    assert not Path("none.jsonl").exists()


def test_who_teaches(params: Params) -> None:
    server = teacher_of(params, "big", "http://127.0.0.1:9/v1", "", 0.7, 64)
    assert isinstance(server, ServedParams) and server.model == "big"
    assert (server.temperature, server.max_tokens) == (0.7, 64)
    assert teacher_pipeline(params, server).template == "plain", "it was never taught the form"  # type: ignore[union-attr]
    framed = teacher_of(params, "big", "http://127.0.0.1:9/v1", "big", 0.7, 64)
    assert teacher_pipeline(params, framed).template == "chat"  # type: ignore[union-attr]
    LANGUAGE_MODEL.mkdir(parents=True)
    (LANGUAGE_MODEL / "config.json").touch()
    own = teacher_of(params, "", "", "", 0.7, 64)
    assert isinstance(own, LocalParams) and own.model == str(LANGUAGE_MODEL)
    assert teacher_pipeline(params, own) == params.pipeline
