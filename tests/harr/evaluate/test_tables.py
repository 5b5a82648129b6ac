"""Metrics in words, and the table of arms."""

from episodes import played

from harr.evaluate.summary import join_candidates, question_rows
from harr.evaluate.tables import label, table


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
