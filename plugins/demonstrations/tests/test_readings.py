"""`harr demonstrations --gold`: what a reader should answer, and the arms that tell how well it reads."""

from pathlib import Path
from typing import Any

import pytest
from harr_demonstrations.readings import Silent, reading_of, write_readings
from stages import world_params

from harr.arms import retriever_arm
from harr.builders.pipeline import build_pipeline
from harr.builders.players import open_players
from harr.corpus.passages import read_questions
from harr.errors import CorpusError, ParamsError
from harr.evaluate.play import Game
from harr.io.jsonl import read_rows
from harr.params import Params
from harr.rag.scoring.ranking import all_gold
from harr.rag.scoring.text import states_answer
from harr.types import Episode, Generate, Passage, Question, Retrieval, Search, Step, Turn
from tasks.paths import PLACES, QUESTIONS

SECTIONS: dict[str, Any] = {
    "pipeline": {"name": "pick", "picks": 2, "reader": True},
    "generator": {"kind": "local", "model": "m", "warmstart": {"demonstrations": "reading.jsonl"}},
    "reward": {"terms": {"answer_f1": 1.0}},
    "evaluate": {"arms": ["frozen", "trained"], "resamples": 100},
}


@pytest.fixture
def params(place: Path, tiny: str) -> Params:
    """A pick with a reader, which is not there yet."""
    return world_params(tiny, **SECTIONS)


def test_examples_have_answers_that_their_passages_tell(params: Params) -> None:
    lines = write_readings(params, 40, Path("reading.jsonl"))
    rows = [row.values["messages"] for row in read_rows(Path("reading.jsonl"))]
    answers = {question.text: question.answers for question in read_questions(QUESTIONS / "train.jsonl")}
    answered = 0
    for system, user, assistant in rows:
        assert [part["role"] for part in (system, user, assistant)] == ["system", "user", "assistant"]
        passages, _, asked = user["content"].removeprefix("Sentences:\n").rpartition("\nQuestion: ")
        golds = answers[asked.removesuffix("\nAnswer:")]
        assert assistant["content"] in (golds[0], "unknown")
        answered += assistant["content"] != "unknown"
        assert states_answer(passages, golds) == (assistant["content"] != "unknown"), passages
    assert answered >= 25 and 0 < len(rows) - answered <= answered // 3, "two picks hold the gold of most questions"
    assert lines[0] == (
        f"written: {answered} examples with an answer and {len(rows) - answered} without, of 24 questions, to reading.jsonl"
    )
    with pytest.raises(CorpusError, match=r"reading\.jsonl exists and is left as it is"):
        write_readings(params, 40, Path("reading.jsonl"))
    with pytest.raises(ParamsError, match=r"set pipeline: \{name: pick, reader: true\}"):
        write_readings(world_params("m"), 40, Path("other.jsonl"))


def test_the_arms_of_a_reader_find_all_and_nothing(params: Params) -> None:
    questions = read_questions(QUESTIONS / "test.jsonl")[:20]
    pipeline = build_pipeline(params.pipeline, params.generator, PLACES)
    with open_players(params, PLACES, questions, candidates="corpus") as player:
        for name, share in {"Gold": 1.0, "Nothing": 0.0}.items():
            arm = player(retriever_arm(f"harr_demonstrations.readings:{name}", {}), None)
            episodes = Game(name, pipeline, arm, Silent()).play(questions, batch_size=8)
            assert {all_gold(episode) for episode in episodes} == {share}
            assert {len(episode.steps) for episode in episodes} == ({2} if share else {1})


def test_yes_stands_anywhere() -> None:
    request = Generate(({"role": "user", "content": "..."},))
    question = Question("q", "Was Ada born in Bath?", answers=("yes",), gold_ids=("a", "b"))

    def answer(*ids: str) -> str:
        step = Step(Search(question, ""), Retrieval(tuple(Passage(name, "Yes, we can.") for name in ids)))
        return str(reading_of(Episode(question, (step,), turns=(Turn(request, ""),)))["messages"][-1]["content"])

    assert (answer("a", "x"), answer("a", "b")) == ("unknown", "yes")
