"""Rows, summaries, the table and the trajectories, worked by hand on a few played questions."""

from collections.abc import Sequence

import pytest

from harr.errors import CorpusError
from harr.evaluate.arms import (
    contrast,
    flat_rows,
    headline,
    is_share,
    join_candidates,
    label,
    question_rows,
    run_arm,
    summarise,
    table,
)
from harr.rag.pipelines.pick import pick
from harr.rag.setup import Setup
from harr.report.examples import trajectories
from harr.types import Episode, Hop, Outcome, Passage, Question, Retrieval, Search, Step


def played(
    name: str,
    answer: str | None,
    *steps: str,
    gold: str = "ab",
    answers: tuple[str, ...] = ("Ada",),
    malformed: int = 0,
) -> Episode:
    """One letter is one passage; a word is one search's passages. Hops are answered with their number."""
    question = Question(name, f"Who is {name}?", answers, tuple(gold))
    searched = tuple(
        Step(Search(question, f"{name}.{number}"), Retrieval(tuple(Passage(p, f"text {p}", p.upper()) for p in step)))
        for number, step in enumerate(steps)
    )
    hops = tuple(Hop(f"{name}.{number}", str(number), "FOUND") for number in range(len(steps)))
    return Episode(question, searched, Outcome(answer, hops, malformed))


class Shelf:
    """Returns the same three passages for every search and remembers the size of each call."""

    def __init__(self) -> None:
        self.calls: list[int] = []

    def retrieve(self, searches: Sequence[Search]) -> list[Retrieval]:
        self.calls.append(len(searches))
        return [Retrieval((Passage("a", ""), Passage("x", ""))) for _ in searches]


def test_run_arm_plays_in_batches_and_keeps_the_order() -> None:
    questions = [Question(str(number), "Who?", gold_ids=("a",)) for number in range(5)]
    shelf = Shelf()
    episodes = run_arm(questions, lambda q: pick(q, picks=1), None, shelf, batch_size=2, desc="arm")
    assert [episode.question.id for episode in episodes] == list("01234")
    assert shelf.calls == [2, 2, 1]


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
        picked = run_arm([asked], lambda q: pick(q, picks=2), None, shelf, batch_size=1, desc="arm")
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


def test_every_metric_has_words() -> None:
    both = join_candidates({name: question_rows([played("q1", "Ada", "abxyz")]) for name in ("corpus", "question")})
    words = [label(key) for key in both[0] if key not in ("id", "question", "answer", "gold_answers")]
    assert len(set(words)) == len(words) == 26


def test_the_table_shows_arms_intervals_and_gains() -> None:
    values = {"mean": 0.5, "low": 0.25, "high": 1.0, "n": 12345}
    metrics = dict.fromkeys(("answer_f1", "answer_em", "all_gold", "recall", "given_all_gold"), values)
    gain = {"gain": -1.0, "low": -1.0, "high": -1.0, "p": 0.00019998}
    text = table({"arms": {"frozen": metrics, "history": metrics}, "paired": {"history": {"answer_f1": gain}}})
    lines = text.split("\n")
    assert len(lines) == 3 and max(map(len, lines)) <= 100
    assert lines[1].split() == ["frozen", "50.0", "[25.0,", "100.0]", "50.0", "50.0", "50.0", "12345"]
    assert lines[2].endswith("-100.0 [-100.0, -100.0]  0.0002")
    metrics = dict.fromkeys(("all_gold", "recall", "recall_at_2", "recall_at_5", "given_all_gold"), values)
    text = table({"arms": {"frozen": metrics, "history": metrics}, "paired": {"history": {"all_gold": gain}}})
    assert text.split("\n")[0].startswith("arm      all gold found % [95 %]")
    assert " R@2   R@5  given gold " in text and max(map(len, text.split("\n"))) <= 100
    picked = table({"arms": {"bm25": {"recall": values}, "full": {}}, "paired": {}})
    assert "recall % [95 %]" in picked and "gain" not in picked and "answer" not in picked


def test_a_deep_ranking_is_led_by_ndcg() -> None:
    values = {"mean": 0.5, "low": 0.25, "high": 1.0, "n": 12345}
    names = ("all_gold", "recall", "recall_at_5", "recall_at_10", "ndcg_at_10", "reciprocal_rank")
    text = table({"arms": {"frozen": dict.fromkeys(names, values)}, "paired": {}})
    assert text.split("\n")[0].split() == "arm nDCG at 10 % [95 %] MRR R@10 recall n".split()


def test_nothing_to_score_is_one_clear_line() -> None:
    with pytest.raises(CorpusError, match="no question has a gold answer or a gold passage"):
        headline({"arms": {"frozen": {"searches": {"mean": 1.0, "low": 1.0, "high": 1.0, "n": 3}}}, "paired": {}})


def answered(right: str) -> list[Episode]:
    """Questions a to h; those named in ``right`` are answered rightly."""
    return [played(name, "Ada" if name in right else "Bob", "ax", "yb") for name in "abcdefgh"]


def test_trajectories_show_gains_first_one_loss_and_honest_counts() -> None:
    shown = trajectories({"bm25": answered(""), "frozen": answered("ab"), "full": answered("bcde")})
    assert shown["arms"] == ["frozen", "full"]
    assert shown["counts"] == {"gained": 3, "lost": 1, "both_wrong": 3, "both_right": 1}
    assert [example["kind"] for example in shown["examples"]] == ["gained", "gained", "lost"]
    assert shown["examples"][2]["id"] == "a"
    kinds = [e["kind"] for e in trajectories({"frozen": answered(""), "full": answered("")}, count=2)["examples"]]
    assert kinds == ["both_wrong", "both_wrong"]
    chosen = {
        trajectories({"frozen": answered(""), "full": answered("abcdefgh")}, 1, seed=s)["examples"][0]["id"]
        for s in range(20)
    }
    assert len(chosen) > 2  # drawn at random, and by the seed alone:
    assert trajectories({"frozen": answered("a")}, seed=3) == trajectories({"frozen": answered("a")}, seed=3)


def test_a_trajectory_tells_what_was_asked_found_and_read() -> None:
    example = trajectories({"frozen": [played("q", "Bob", "ax")], "full": [played("q", "Ada", "ax", "b")]})["examples"][
        0
    ]
    assert (example["kind"], example["question"], example["gold_answers"]) == ("gained", "Who is q?", ["Ada"])
    full = example["arms"]["full"]
    assert (full["answer"], full["right"], example["arms"]["frozen"]["right"]) == ("Ada", True, False)
    assert full["hops"][0] == {
        "sub_query": "q.0", "answer": "0", "status": "FOUND",
        "passages": [
            {"id": "a", "title": "A", "text": "text a", "is_gold": True},
            {"id": "x", "title": "X", "text": "text x", "is_gold": False},
        ],
    }  # fmt: skip


def test_without_answers_right_means_all_gold() -> None:
    shown = trajectories({"frozen": [played("q", None, "ax")], "full": [played("q", None, "ab")]})
    assert shown["counts"]["gained"] == 1 and "gold" in shown["right"]


def test_seeds_are_averaged_per_question_and_told_apart() -> None:
    """Question a: right in one of two seeds; b: in both. The interval is over two questions, not four."""
    from harr.evaluate.arms import average_seeds, seed_means

    by_seed = [
        [{"id": "a", "answer": "x", "recall": 1.0}, {"id": "b", "answer": "y", "recall": 1.0}],
        [{"id": "a", "answer": "z", "recall": 0.0}, {"id": "b", "answer": "y", "recall": 1.0}],
    ]
    averaged = average_seeds(by_seed)
    assert averaged == [{"id": "a", "answer": "x", "recall": 0.5}, {"id": "b", "answer": "y", "recall": 1.0}]
    assert seed_means(by_seed) == {"recall": [1.0, 0.5]}


def test_pass_at_k_against_counting(setup: Setup) -> None:
    """From 4 samples with 2 right: any 2 of them hold a right one in 5 of 6 cases."""
    from harr.evaluate.arms import pass_at, pass_rates

    assert pass_at(4, 2, 2) == pytest.approx(5 / 6)
    assert pass_at(4, 0, 4) == 0.0
    questions = list(setup.questions[:3])
    rates = pass_rates(questions, setup.pipeline, None, setup.retriever, samples=4, ks=(1, 4), seed=0)
    assert set(rates) == {question.id for question in questions}
    assert all(0.0 <= row["pass_at_1"] <= row["pass_at_4"] <= 1.0 for row in rates.values())
    assert setup.retriever.sampling is None, "afterwards it is greedy again"
