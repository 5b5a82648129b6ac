"""Rows and summaries, worked by hand on a few played questions."""

import pytest
from episodes import Shelf, played

from harr.errors import CorpusError
from harr.evaluate.summary import (
    average_seeds,
    contrast,
    flat_rows,
    headline,
    join_candidates,
    question_rows,
    seed_means,
    summarise,
)
from harr.evaluate.tables import is_share, label
from harr.rag.pipelines.pick import pick
from harr.rag.rollout import play
from harr.types import Episode, Question, Retrieval, Search, Shortened, Step


def test_rows_hold_every_metric_that_applies() -> None:
    rows = question_rows([played("q1", "the Ada", "axy", "zab"), played("q2", "Bob", "xa", gold="cab", malformed=2)])
    assert rows[0] == {
        "id": "q1", "question": "Who is q1?", "answer": "the Ada", "gold_answers": ["Ada"],
        "answer_em": 1.0, "answer_f1": 1.0, "recall": 1.0, "all_gold": 1.0, "recall_at_2": 0.5, "recall_at_5": 1.0,
        "reciprocal_rank": 1.0, "hop_recall_1": 1.0, "hop_recall_2": 1.0, "searches": 2.0, "context_words": 18.0,
        "malformed": 0.0, "repeated_queries": 0.0,
    }  # fmt: skip
    assert rows[1] == {
        "id": "q2", "question": "Who is q2?", "answer": "Bob", "gold_answers": ["Ada"],
        "answer_em": 0.0, "answer_f1": 0.0, "recall": 1 / 3, "all_gold": 0.0, "recall_at_2": 1 / 3,
        "reciprocal_rank": 0.5, "hop_recall_1": 0.0, "hop_recall_2": 1.0, "hop_recall_3": 0.0,
        "searches": 1.0, "context_words": 6.0, "malformed": 2.0, "repeated_queries": 0.0,
    }  # fmt: skip


def test_queries_are_audited_only_where_any_is_written() -> None:
    asked = Question("q", "Who made Acme?", ("Ada Brown",), ("a",))
    shelf = Shelf()
    for picking in (True, False):
        picked = play([asked], lambda q: pick(q, picks=2), shelf, None)
        assert not {"repeated_queries", "answer_in_query"} & set(question_rows(picked, picking=picking)[0])
    steps = [Step(Search(asked, query), Retrieval(())) for query in (asked.text, "ada brown", "Ada Brown?")]
    audited, other = question_rows([Episode(asked, tuple(steps)), Episode(asked, (steps[0],))])
    assert (audited["repeated_queries"], audited["answer_in_query"]) == (1 - 2 / 3, 1.0)
    assert (other["repeated_queries"], other["answer_in_query"]) == (0.0, 0.0)
    assert is_share("repeated_queries") and label("given_repeated_queries") == "queries asked again, given passages"


def test_what_states_lack_is_told_where_they_have_a_history() -> None:
    asked = Question("q", "Who made Acme?", ("Ada Brown",), ("a",))
    lost = [Shortened(), Shortened(hops=1, cut=1), Shortened(hops=2, cut=1, dropped=1, question=True)]
    steps = [Step(Search(asked, asked.text), Retrieval((), state="s", shortened=own)) for own in lost]
    long, first = question_rows([Episode(asked, tuple(steps)), Episode(asked, (steps[0],))])
    assert (long["hops_cut"], long["hops_dropped"], long["question_cut"]) == (2 / 3, 1 / 3, 1 / 3)
    assert (first["hops_cut"], first["hops_dropped"], first["question_cut"]) == (0.0, 0.0, 0.0)
    assert "hops_cut" not in question_rows([Episode(asked, (steps[0],))])[0], "an arm that sees no history has none"
    assert is_share("hops_dropped") and label("hops_cut") == "hops cut in the state"


def test_answers_are_scored_only_where_the_pipeline_gives_them() -> None:
    by_design = question_rows([played("q1", None, "a"), played("q2", None, "b")])
    assert all("answer_f1" not in row for row in by_design)
    failed = question_rows([played("q1", None, "a", malformed=1), played("q2", None, "b")])
    assert [row["answer_f1"] for row in failed] == [0.0, 0.0]
    without_gold = question_rows([played("q1", "Ada", "a", answers=()), played("q2", "Ada", "b", gold="")])
    assert "answer_f1" not in without_gold[0] and "recall" not in without_gold[1]
    assert without_gold[1]["answer_f1"] == 1.0


def rows(**recalls: float) -> list[dict[str, object]]:
    return [{"id": key, "question": "", "answer": None, "gold_answers": [], "recall": v} for key, v in recalls.items()]


def test_given_passages_get_a_prefix() -> None:
    joined = join_candidates({"corpus": rows(q1=0.5, q2=0.0), "question": rows(q2=1.0)})
    assert [(row["id"], row["recall"], row.get("given_recall")) for row in joined] == [
        ("q1", 0.5, None),
        ("q2", 0.0, 1.0),
    ]
    assert join_candidates({"question": rows(q1=1.0)})[0]["recall"] == 1.0, "alone it needs none"


def test_contrast_pairs_by_question_id() -> None:
    ours, theirs = rows(q3=1.0, q1=1.0, q2=0.5, q9=0.0), rows(q1=0.0, q2=0.5, q3=0.0)
    found = contrast(ours, theirs, resamples=500, seed=0)["recall"]
    assert found["gain"] == pytest.approx(2 / 3)  # differences 1, 1 and 0; q9 has no partner
    assert (found["n"], found["p"]) == (3, 0.5)
    assert contrast(rows(q1=1.0), rows(q2=1.0), resamples=10, seed=0) == {}


def test_summary_has_exactly_the_common_shape() -> None:
    found = summarise({"frozen": rows(q1=0.0, q2=0.5), "full": rows(q1=1.0, q2=1.0)}, resamples=100, seed=0)
    assert list(found) == ["arms", "paired"]
    assert found["arms"]["full"] == {"recall": {"mean": 1.0, "low": 1.0, "high": 1.0, "n": 2}}
    assert list(found["paired"]) == ["full"]
    assert set(found["paired"]["full"]["recall"]) == {"gain", "low", "high", "p"}
    assert found["paired"]["full"]["recall"]["gain"] == 0.75
    assert summarise({"full": rows(q1=1.0)}, resamples=10, seed=0)["paired"] == {}
    assert flat_rows(found)[1] == {"arm": "full", "metric": "recall", "mean": 1.0, "low": 1.0, "high": 1.0, "n": 2}


def test_hops_stay_in_order_whatever_the_first_question_is() -> None:
    both = question_rows([played("q1", "Ada", "ab"), played("q2", "Ada", "abc", gold="abc")])
    names = list(summarise({"frozen": both}, resamples=10, seed=0)["arms"]["frozen"])
    assert [name for name in names if name.startswith("hop")] == ["hop_recall_1", "hop_recall_2", "hop_recall_3"]


def test_nothing_to_score_is_one_clear_line() -> None:
    with pytest.raises(CorpusError, match="no question has a gold answer or a gold passage"):
        headline({"arms": {"frozen": {"searches": {"mean": 1.0, "low": 1.0, "high": 1.0, "n": 3}}}, "paired": {}})


def test_seeds_are_averaged_per_question_and_told_apart() -> None:
    """Question a: right in one of two seeds; b: in both. The interval is over two questions, not four."""
    by_seed = [
        [{"id": "a", "answer": "x", "recall": 1.0}, {"id": "b", "answer": "y", "recall": 1.0}],
        [{"id": "a", "answer": "z", "recall": 0.0}, {"id": "b", "answer": "y", "recall": 1.0}],
    ]
    averaged = average_seeds(by_seed)
    assert averaged == [{"id": "a", "answer": "x", "recall": 0.5}, {"id": "b", "answer": "y", "recall": 1.0}]
    assert seed_means(by_seed) == {"recall": [1.0, 0.5]}
