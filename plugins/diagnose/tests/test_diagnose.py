"""`harr diagnose` on a small world: figures, advice and page, from questions that are no test."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from subprocess import CompletedProcess

import numpy as np
import pytest
from harr_diagnose.diagnose import (
    add_mention,
    diagnose,
    figures_of,
    place_of,
    play_untrained,
    roll_out,
    some_questions,
    untrained_arms,
)
from harr_diagnose.measure import all_gold_at
from stages import ROOT, SMOKE, nothing, world_params

from harr.corpus.passages import Passages, read_questions
from harr.errors import CorpusError
from harr.io.files import read_json, write_text
from harr.params import Params
from tasks.paths import CORPUS, PLACES, QUESTIONS
from tasks.play import play_arms, with_arms

ROLLED = ("rolled_out", "disagreeing", "all_right")
GIVEN = {**SMOKE["retriever"], "candidates": "question"}


def test_missing_stages_are_run_first(
    workplace: Path, harr: Callable[..., CompletedProcess[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []
    monkeypatch.setattr("flows.reproduce.reproduce", lambda stages, *others: ran.extend(stages))
    done = harr("diagnose")
    assert ran == ["inputs", "download", "embed", "index", "generator"]
    assert done.returncode == 1 and done.stderr.startswith("error: data/questions/train.jsonl is missing")
    assert harr("diagnose", "--questions", "away.jsonl").returncode == 1 and len(ran) == 5


def test_it_plays_what_needs_no_training_and_says_what_to_do(place: Path, tiny: str) -> None:
    advice = diagnose(world_params(tiny), None, 10, Path("diagnosis"))
    figures = read_json(Path("diagnosis/diagnosis.json"))
    files = "data/questions/validation.jsonl and data/questions/train.jsonl"
    assert figures["questions"] == 10 and figures["file"] == files and figures["advice"] == advice
    assert figures["candidates"] == "corpus" and figures["rolled_out"] == 10
    assert {"frozen", "bm25", "hybrid", "last_answer", "oracle_query"} <= set(figures["arms"])
    assert not figures["arms"].keys() & {"trained", "infonce", "rl_no_history"}
    assert "best_by_kind" in figures["arms"], "questions of several kinds"
    reader = figures["reader"]
    assert 0 < reader["gain"] == pytest.approx(reader["gold"] - reader["nothing"], abs=1e-3)
    ceilings = ("oracle_query", "bm25_oracle_query", "gold", "best_by_kind")
    assert figures["best"] not in ceilings
    assert figures["found"] == max(
        own["all_gold"]["mean"] for name, own in figures["arms"].items() if name not in ceilings
    )
    pool = figures["pool"]
    shares = [figures["all_gold"][str(depth * pool)] for depth in (1, 2, 4)]
    assert shares == sorted(shares) and figures["found"] <= shares[0] == figures["ceiling"]
    assert all(0 <= figures[name] <= 1 for name in ("disagreeing", "all_right", "ambiguous_share"))
    page = Path("diagnosis/index.html").read_text()
    assert all(sentence.replace("'", "&#39;") in page for sentence in advice) and "last_answer" in page


@pytest.mark.parametrize("search", ["sparse", "hybrid"])
def test_arms_rank_as_in_the_evaluation_and_the_pool_is_the_policy_s(place: Path, tiny: str, search: str) -> None:
    retriever = {**SMOKE["retriever"], "search": search, "fusion": "rrf", "pool": 5}
    params = with_arms(world_params(tiny, retriever=retriever), ["frozen", "hybrid"])
    asked = read_questions(QUESTIONS / "train.jsonl")
    evaluated, _ = play_arms(params, asked, nothing, model=None)
    _, found, rows = play_untrained(params, asked, "corpus", PLACES)
    for arm in ("frozen", "hybrid"):
        assert [row["ranked"] for row in rows[arm]] == [row["ranked"] for row in evaluated[arm][0]]
    pools = all_gold_at(asked, found["frozen"], 5, by_share=True)
    assert [share for _, share in pools] == [row["pool_recall"] for row in evaluated["frozen"][0]]


def test_a_reader_s_gain_is_over_the_questions_with_answers(place: Path, tiny: str) -> None:
    params, asked = (
        with_arms(world_params(tiny), ["frozen", "gold", "nothing"]),
        read_questions(QUESTIONS / "train.jsonl"),
    )
    some = [replace(question, answers=question.answers * (n > 9)) for n, question in enumerate(asked)]
    figures, _ = figures_of(params, some, *play_untrained(params, some, "corpus", PLACES))
    alone, _ = figures_of(params, some[10:], *play_untrained(params, some[10:], "corpus", PLACES))
    assert figures.reader == alone.reader


def test_arms_play_where_evaluation_searches_and_rollouts_where_training_does(
    place: Path, tiny: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rolled: list[int] = []

    def note(section: object, setup: object, questions: list[object], seed: int) -> list[dict[str, object]]:
        rolled.append(len(questions))
        return [{"kept": False, "reason": "all wrong"} for _ in questions]

    monkeypatch.setattr("harr.filter.try_questions", note)
    assert roll_out(world_params(tiny), read_questions(QUESTIONS / "train.jsonl"))["rolled_out"] == 24
    assert roll_out(world_params(tiny, retriever=GIVEN), [])["rolled_out"] == 0 and rolled == [24]


def test_questions_without_gold_in_the_index_are_played_where_training_searches(
    place: Path, tiny: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = read_questions(QUESTIONS / "train.jsonl")
    assert place_of(world_params(tiny), asked) == ("corpus", asked, [])
    rows = Passages.open(CORPUS).rows_of(asked[0].gold_ids)
    lost = sum(bool({*question.gold_ids} - {*asked[0].gold_ids}) for question in asked)
    assert lost > 12
    monkeypatch.setattr(Passages, "searchable_rows", lambda self: np.array(sorted(rows.values())))
    message = rf"of 24 questions {lost} have gold that is not in the index; name questions"
    with pytest.raises(CorpusError, match=message):
        place_of(world_params(tiny), asked)
    own = [replace(question, candidate_ids=question.gold_ids) for question in asked]
    where, played, (note,) = place_of(world_params(tiny, retriever=GIVEN), own)
    assert where == "question" and played == own and "an easier task" in note


def test_the_same_questions_are_drawn_again_and_training_questions_fill_up(place: Path) -> None:
    drawn = [some_questions(None, 3, seed)[1] for seed in (0, 0, 1, 2, 3)]
    assert drawn[0] == drawn[1] and any(other != drawn[0] for other in drawn)
    validation = {q.id for q in read_questions(QUESTIONS / "validation.jsonl")}
    assert {q.id for q in drawn[0]} < validation
    asked = [q.id for q in some_questions(None, 9, 0)[1]]
    assert len(set(asked)) == 9 and validation < set(asked)
    with pytest.raises(CorpusError, match=r"holds no question with passages of its own"):
        some_questions(None, 9, 0, given=True)
    write_text(Path("empty.jsonl"), "")
    with pytest.raises(CorpusError, match=r"empty.jsonl holds no question; name a file of questions with --questions"):
        some_questions(Path("empty.jsonl"), 5, 0)


def test_a_rule_of_a_plug_in_can_be_the_best_arm(place: Path, tiny: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On corpora with titles `mention` is, and training does not pay there."""
    monkeypatch.setattr("harr_diagnose.diagnose.roll_out", lambda *_: dict.fromkeys(ROLLED, 0.0))
    params = with_arms(add_mention(world_params(tiny)), ["frozen", "mention"])
    asked = read_questions(QUESTIONS / "train.jsonl")
    scores: dict[str, float] = {"frozen": 0.0, "mention": 1.0}
    rows = {arm: [{"id": question.id, "answer_f1": score} for question in asked] for arm, score in scores.items()}
    figures, _ = figures_of(params, asked, {"frozen": []}, {"frozen": {}, "mention": {}}, rows)
    assert figures.best == "mention" and figures.gain_of_best["gain"] == 1.0


def test_arms_that_do_not_fit_are_left_out(tiny: str) -> None:
    plain = world_params(tiny, index={"full_text": False}, evaluate={"arms": ["frozen", "trained"]})
    assert {"frozen", "last_answer"} <= set(untrained_arms(plain)) and "bm25" not in untrained_arms(plain)
    fused = Params.load(ROOT / "recipes/medquad_retrieval.yaml")
    assert {"frozen", "bm25", "hybrid"} <= set(untrained_arms(fused)), "retriever.fusion is for hybrid alone"
    quickstart = Params.load(ROOT / "params.yaml")
    assert {"frozen", "bm25", "oracle_query"} <= set(untrained_arms(quickstart))
