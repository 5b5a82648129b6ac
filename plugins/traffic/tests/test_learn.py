"""Learning from a log: its questions, its choices, and a model that earns more than the one that drew."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from statistics import fmean

import pytest
from accelerate.state import GradientState
from harr_traffic import learn
from harr_traffic.log import Feedback, LoggedSearch, Recording, TrafficLog
from harr_traffic.questions import CHOICES, Drawn, choices_of
from letters import nothing

from harr.builders.methods import method_of
from harr.corpus.passages import read_questions
from harr.datasets.download import download
from harr.errors import CorpusError, DamagedFile, ParamsError
from harr.io.files import write_text
from harr.params.download import FunctionDatasetParams
from harr.params.train import FunctionTrainParams
from harr.rag.policies.state import reads
from harr.rag.setup import Setup
from harr.types import Question, Search

ROUNDS = 12
LOGGED = FunctionTrainParams(
    method="function",
    function="harr_traffic.learn:METHOD",
    learns="retriever",
    steps=1,
    questions_per_step=8,
)


def section(folder: Path, passages: str = "passages.jsonl") -> FunctionDatasetParams:
    settings = {"passages": [str(folder / passages)], "log": str(folder / "traffic"), "test_share": 0.3}
    return FunctionDatasetParams(dataset="function", function="harr_traffic.questions:DATASET", settings=settings)


def with_choices(question: Question, choices: list[Drawn]) -> Question:
    return replace(question, notes={CHOICES: [asdict(one) for one in choices]})


@pytest.fixture
def questions(setup: Setup, tmp_path: Path) -> list[Question]:
    """What stage download makes of a log in which users took winter alone."""
    policy, log = setup.retriever, TrafficLog(Recording(folder=tmp_path / "traffic"))
    asked = [Search(q, q.text, k=1) for q in setup.questions for _ in range(ROUNDS)]
    state_reads = reads(policy.style, policy.history)
    for number, (search, found) in enumerate(zip(asked, policy.retrieve(asked), strict=True)):
        pool = tuple(passage.id for passage in policy.passages.take(found.pool))
        texts = (state_reads, search.query, search.query, found.state)
        log.add_search(LoggedSearch(f"{number}", 0.0, "1", *texts, pool[:1], pool, found.logprob))
        log.outcome(Feedback(f"{number}", 0.0, float(pool[0] in search.question.gold_ids)))
    every = policy.passages.take(range(len(policy.passages)))
    rows = [{"id": one.id, "text": one.text, "title": one.title} for one in every]
    write_text(tmp_path / "passages.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    download(section(tmp_path), tmp_path / "corpus", tmp_path / "questions", tmp_path / "work")
    return read_questions(tmp_path / "questions" / "train.jsonl")


def test_a_log_becomes_questions_with_rewards(setup: Setup, questions: list[Question], tmp_path: Path) -> None:
    gold = {one.text: one.gold_ids for one in setup.questions}
    test = read_questions(tmp_path / "questions" / "test.jsonl")
    assert test and not {one.text for one in test} & {one.text for one in questions}
    for one in questions:
        assert len(choices_of(one)) == ROUNDS and one.gold_ids in ((), gold[one.text])
        for drawn in choices_of(one):
            assert drawn.score == (drawn.pool[0] in gold[one.text]) and drawn.chosen == 1 and drawn.logprob < 0
    assert all(one.gold_ids == gold[one.text] for one in test)


def test_it_learns_what_users_took(setup: Setup, questions: list[Question], tmp_path: Path) -> None:
    params = LOGGED.model_copy(update={"steps": 16, "settings": {"clip": (0.2, 1.0)}})
    own = replace(setup, questions=questions)

    def right() -> float:
        found = setup.retriever.greedy().retrieve([Search(one, one.text) for one in setup.questions])
        first = [one.passages[0].id for one in found]
        return fmean(pid in one.gold_ids for pid, one in zip(first, setup.questions, strict=True))

    before = right()
    GradientState()._set_sync_gradients(False)  # as a training that was stopped midway leaves accelerate's one switch
    rows = learn.train(params, own, tmp_path / "adapter", tmp_path / "train", nothing, 0)
    assert right() >= before + 0.2, (before, right())
    assert rows[0]["logprob_gap"] < 1e-3 < rows[-1]["logprob_gap"], "the first update is of the model that drew"
    assert (tmp_path / "adapter" / "harr.json").exists()


def test_ranks_after_those_kept_are_learnt_from(setup: Setup, tmp_path: Path) -> None:
    """Users took the second passage where it was right; the first, the best, was kept and is given."""
    policy = replace(setup.retriever, keep=1)
    state_reads = reads(policy.style, policy.history)
    asked = [Search(q, q.text, k=2) for q in setup.questions for _ in range(ROUNDS)]
    first = {one.question.text: found.passages[0].id for one, found in zip(asked, policy.retrieve(asked), strict=True)}
    choices: dict[str, list[Drawn]] = {one.text: [] for one in setup.questions}
    for search, found in zip(asked, policy.retrieve(asked), strict=True):
        pool = tuple(passage.id for passage in policy.passages.take(found.pool))
        assert found.kept == 1 and found.logprob is not None and pool[0] == first[search.question.text]
        right = float(pool[1] in search.question.gold_ids)
        choices[search.question.text].append(Drawn(state_reads, found.state, pool, 2, found.logprob, right, kept=1))
    params = LOGGED.model_copy(update={"steps": 4})
    own = replace(setup, questions=[with_choices(one, choices[one.text]) for one in setup.questions])
    rows = learn.train(params, own, tmp_path / "adapter", tmp_path / "train", nothing, 0)
    assert rows[0]["logprob_gap"] < 1e-3 < rows[-1]["logprob_gap"], "the first update is of the model that drew"
    episodes, _ = learn.choices_in(own.questions, setup.retriever)
    assert {step.retrieval.kept for episode in episodes for step in episode.steps} == {1}


def test_what_cannot_be_learnt_from_is_one_line(setup: Setup, questions: list[Question], tmp_path: Path) -> None:
    with pytest.raises(ParamsError, match=r"train\.settings: clip.0: should be less than"):
        method_of(LOGGED.model_copy(update={"settings": {"clip": (2, 0.2)}}))
    with pytest.raises(CorpusError, match="no training question has one; log with explore"):
        learn.train(LOGGED, setup, tmp_path / "a", tmp_path / "w", nothing, 0)
    foreign = [with_choices(one, [replace(choices_of(one)[0], reads="json")]) for one in questions[:1]]
    with pytest.raises(ParamsError, match="the log has states of json, and the model reads sep with history"):
        learn.choices_in(foreign, setup.retriever)
    elsewhere = tmp_path / "elsewhere.jsonl"
    elsewhere.write_text('{"id": "other", "text": "Of another corpus."}\n')
    other = section(tmp_path, "elsewhere.jsonl")
    with pytest.raises(CorpusError, match=r"240 of 240 searches in .* are of passages that this corpus does not have"):
        download(other, tmp_path / "corpus", tmp_path / "questions", tmp_path / "work")
    [day] = (tmp_path / "traffic").glob("outcomes-*.jsonl")
    day.write_text(day.read_text() + '{"format": 1, "id": "x"\n')
    with pytest.raises(DamagedFile, match=r"outcomes-\d+\.jsonl:241: no JSON"):
        download(section(tmp_path), tmp_path / "corpus", tmp_path / "questions", tmp_path / "work")
    assert read_questions(tmp_path / "questions" / "train.jsonl") == questions, "nothing was half-read"
