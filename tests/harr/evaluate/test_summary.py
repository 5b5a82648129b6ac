"""Rows and summaries, worked by hand on a few played questions."""

import numpy as np
import pytest
from episodes import Shelf, played

from harr.arms import ARMS
from harr.errors import CorpusError
from harr.evaluate.rows import join_candidates, question_rows
from harr.evaluate.summary import BEST_BY_KIND, contrast, flat_rows, headline, summarise
from harr.evaluate.tables import is_share, label
from harr.rag.pipelines.pick import pick
from harr.rag.rollout import play
from harr.types import Episode, Question, Retrieval, Search, Step


def test_rows_hold_every_metric_that_applies() -> None:
    rows = question_rows([played("q1", "the Ada", "axy", "zab"), played("q2", "Bob", "xa", gold="cab", malformed=2)])
    assert rows[0] == {
        "id": "q1", "question": "Who is q1?", "answer": "the Ada", "gold_answers": ["Ada"],
        "answer_em": 1.0, "answer_f1": 1.0, "recall": 1.0, "all_gold": 1.0, "recall_at_2": 0.5, "recall_at_5": 1.0,
        "success_at_5": 1.0,
        "reciprocal_rank": 1.0, "hop_recall_1": 1.0, "hop_recall_2": 1.0, "searches": 2.0, "context_words": 18.0,
        "malformed": 0.0, "repeated_queries": 0.0, "gold": ["a", "b"],
        "ranked": ["a", "x", "y", "z", "b"],
    }  # fmt: skip
    assert rows[1] == {
        "id": "q2", "question": "Who is q2?", "answer": "Bob", "gold_answers": ["Ada"],
        "answer_em": 0.0, "answer_f1": 0.0, "recall": 1 / 3, "all_gold": 0.0, "recall_at_2": 1 / 3,
        "recall_at_5": 1 / 3, "success_at_5": 1.0, "ranked": ["x", "a"],
        "reciprocal_rank": 0.5, "hop_recall_1": 0.0, "hop_recall_2": 1.0, "hop_recall_3": 0.0,
        "searches": 1.0, "context_words": 6.0, "malformed": 2.0, "repeated_queries": 0.0,
        "gold": ["c", "a", "b"],
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


def test_answers_are_scored_only_where_the_pipeline_gives_them() -> None:
    by_design = question_rows([played("q1", None, "a"), played("q2", None, "b")])
    assert all("answer_f1" not in row for row in by_design)
    failed = question_rows([played("q1", None, "a", malformed=1), played("q2", None, "b")])
    assert [row["answer_f1"] for row in failed] == [0.0, 0.0]
    without_gold = question_rows([played("q1", "Ada", "a", answers=()), played("q2", "Ada", "b", gold="")])
    assert "answer_f1" not in without_gold[0] and "recall" not in without_gold[1]
    assert without_gold[1]["answer_f1"] == 1.0
    with pytest.raises(CorpusError, match="no question has a gold answer or a gold passage"):
        headline({"arms": {"frozen": {"searches": {"mean": 1.0, "low": 1.0, "high": 1.0, "n": 3}}}, "paired": {}})


Row = dict[str, object]


def rows(**recalls: float) -> list[Row]:
    return [{"id": key, "question": "", "answer": None, "gold_answers": [], "recall": v} for key, v in recalls.items()]


def test_given_passages_get_a_prefix() -> None:
    joined = join_candidates({"corpus": rows(q1=0.5, q2=0.0), "question": rows(q2=1.0)})
    recalls = [(row["id"], row["recall"], row.get("given_recall")) for row in joined]
    assert recalls == [("q1", 0.5, None), ("q2", 0.0, 1.0)]
    assert join_candidates({"question": rows(q1=1.0)})[0]["recall"] == 1.0, "alone it needs none"


def test_contrast_pairs_by_question_id() -> None:
    ours, theirs = rows(q3=1.0, q1=1.0, q2=0.5, q9=0.0), rows(q1=0.0, q2=0.5, q3=0.0)
    found = contrast([ours], [theirs], resamples=500, seed=0)["recall"]
    assert found["gain"] == pytest.approx(2 / 3)  # differences 1, 1 and 0; q9 has no partner
    assert found["n"] == 3 and 0.1 < found["p"] < 1 and found["low"] == 0.0
    assert contrast([rows(q1=1.0)], [rows(q2=1.0)], resamples=10, seed=0) == {}


def test_summary_has_exactly_the_common_shape() -> None:
    runs = {"frozen": [rows(q1=0.0, q2=0.5)], "trained": [rows(q1=1.0, q2=1.0), rows(q1=0.5, q2=1.0)]}
    found = summarise(runs, resamples=100, seed=0)
    assert list(found) == ["arms", "paired", "contrasts"]
    assert set(found["arms"]["trained"]["recall"]) == {"mean", "low", "high", "n", "seeds"}
    assert found["arms"]["frozen"]["recall"]["seeds"] == [] and found["arms"]["trained"]["recall"]["seeds"] == [
        1.0,
        0.75,
    ]
    gain = found["paired"]["trained"]["recall"]
    assert set(gain) == {"gain", "low", "high", "p", "n", "seeds"}
    assert gain["gain"] == 0.625 and gain["n"] == 2 and gain["seeds"] == [0.75, 0.5]
    assert list(found["contrasts"]) == ["trained-frozen"]
    family = found["contrasts"]["trained-frozen"]["recall"].pop("family")
    assert found["contrasts"]["trained-frozen"]["recall"] == gain and set(family) == {"low", "high", "p", "of"}
    assert summarise({"trained": [rows(q1=1.0)]}, resamples=10, seed=0)["paired"] == {}
    hops = question_rows([played("q1", "Ada", "ab"), played("q2", "Ada", "abc", gold="abc")])
    names = [name for name in summarise({"frozen": [hops]}, resamples=10, seed=0)["arms"]["frozen"] if "hop" in name]
    assert names == ["hop_recall_1", "hop_recall_2", "hop_recall_3"], "in order, whatever the first question has"
    labels = {"setting": "", "arm": "trained", "metric": "recall"}
    assert flat_rows(found)[1] == labels | found["arms"]["trained"]["recall"]


def many(shift: float, seed: int, kinds: int = 1, settings: int = 1) -> list[Row]:
    """Return sixty questions, each with its own recall; kinds and settings take turns."""
    values = np.clip(np.random.default_rng(seed).normal(0.5 + shift, 0.2, 60), 0.0, 1.0)
    return [
        {
            **{"id": f"q{n}", "question": "", "answer": None, "gold_answers": [], "gold": [f"p{n}"]},
            **({"kind": f"kind{n % kinds}"} if kinds > 1 else {}),
            **({"setting": f"set{n % settings}"} if settings > 1 else {}),
            "recall": float(value),
        }
        for n, value in enumerate(values)
    ]


def test_a_comparison_with_an_arm_that_was_trained_once_has_no_p() -> None:
    runs = {"bm25": [many(0, 1)], "frozen": [many(0, 2)], "trained": [many(0.3, 3)]}
    once = summarise(runs, resamples=999, seed=0)
    assert "p" not in once["paired"]["trained"]["recall"] and "p" in once["paired"]["bm25"]["recall"]
    for pair in ("trained-bm25", "trained-frozen"):
        gain = once["contrasts"][pair]["recall"]
        assert "p" not in gain and "p" not in gain["family"] and gain["family"]["of"] == 2
        assert gain["low"] > 0 and len(gain["seeds"]) == 1
    often = summarise(runs | {"trained": [many(0.3, 3), many(0.2, 4), many(0.4, 5)]}, resamples=999, seed=0)
    gain = often["contrasts"]["trained-bm25"]["recall"]
    assert gain["p"] <= 0.05 and len(gain["seeds"]) == 3
    assert gain["high"] - gain["low"] > 1.2 * (once["contrasts"]["trained-bm25"]["recall"]["high"] - gain["gain"])


def test_trained_arms_are_compared_seed_by_seed() -> None:
    """Both arms are better with one seed than with the other: the gain is the same for each."""
    runs = {"infonce": [many(s, 1) for s in (-0.1, 0.0, 0.1)], "trained": [many(s + 0.05, 1) for s in (-0.1, 0.0, 0.1)]}
    gain = summarise(runs, resamples=999, seed=0)["contrasts"]["trained-infonce"]["recall"]
    assert gain["seeds"] == pytest.approx([0.05] * 3, abs=0.01) and 0.03 < gain["low"] < gain["high"] < 0.07


def test_trained_is_contrasted_with_every_other_arm_and_the_baseline() -> None:
    names = ("bm25", "frozen", "last_answer", "oracle_query", "infonce", "trained")
    found = summarise({name: [many(0, place)] * 2 for place, name in enumerate(names)}, resamples=99, seed=0)
    assert list(found["contrasts"]) == [f"trained-{name}" for name in names[:-1]]
    assert {gains["recall"]["family"]["of"] for gains in found["contrasts"].values()} == {5}


def test_best_by_kind_takes_the_best_untrained_retriever_of_each_kind() -> None:
    ours = {name: [many(shift, 7, kinds=2)] for name, shift in (("bm25", 0.1), ("frozen", 0.0), ("oracle_query", 0.4))}
    for row in ours["frozen"][0][1::2]:  # the second kind
        row["recall"] = 0.9
    runs = ours | {"trained": [many(0.3, 8, kinds=2)] * 2}
    found = summarise(runs, resamples=99, seed=0)
    best = found["arms"][BEST_BY_KIND]["recall"]
    kinds = found["kinds"]
    assert list(kinds) == ["kind0", "kind1"] and kinds["kind0"]["trained"]["n"] == 30
    assert kinds["kind0"][BEST_BY_KIND]["mean"] == kinds["kind0"]["bm25"]["mean"]
    assert kinds["kind1"][BEST_BY_KIND]["mean"] == kinds["kind1"]["frozen"]["mean"] == pytest.approx(0.9)
    assert best["mean"] == pytest.approx((kinds["kind0"]["bm25"]["mean"] + 0.9) / 2)
    assert best["seeds"] == [] and f"trained-{BEST_BY_KIND}" in found["contrasts"]
    assert ARMS["oracle_query"].ceiling, "else it would be the best of both kinds"
    for alone in ({name: runs[name] for name in ("bm25", "trained")}, {"bm25": [many(0, 1)], "frozen": [many(0, 2)]}):
        assert BEST_BY_KIND not in summarise(alone, resamples=99, seed=0)["arms"]
    each = {name: [[{**row, "kind": f"{place}"} for place, row in enumerate(own[0])]] for name, own in ours.items()}
    assert BEST_BY_KIND not in summarise(each, resamples=99, seed=0)["arms"], "a kind a question is no kind"


def test_settings_have_figures_of_their_own_and_their_mixture_no_contrast() -> None:
    runs = {"bm25": [many(0, 1, 2, 2)], "frozen": [many(0, 2, 2, 2)], "trained": [many(0.3, s, 2, 2) for s in (3, 4)]}
    found = summarise(runs, resamples=99, seed=0)
    assert found["contrasts"] == {} and "kinds" not in found and found["arms"]["trained"]["recall"]["n"] == 60
    assert list(found["settings"]) == ["set0", "set1"]
    for own in found["settings"].values():
        assert own["arms"]["trained"]["recall"]["n"] == 30 and list(own["contrasts"]) == [
            "trained-bm25",
            "trained-frozen",
        ]


def test_questions_that_share_gold_make_an_interval_wider() -> None:
    alone = many(0, 1)
    apart = [{**row, "recall": alone[place // 6]["recall"]} for place, row in enumerate(alone)]
    shared = [{**row, "gold": [f"p{place // 6}"]} for place, row in enumerate(apart)]
    both = [summarise({"bm25": [own]}, resamples=999, seed=0)["arms"]["bm25"]["recall"] for own in (shared, apart)]
    spans = [found["high"] - found["low"] for found in both]
    assert spans[0] > 1.8 * spans[1]
