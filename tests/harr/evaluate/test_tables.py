"""Metrics in words, and the table of arms."""

from harr.evaluate.tables import table

VALUES = {"mean": 0.5, "low": 0.25, "high": 1.0, "n": 12345, "seeds": []}
GAIN = {"gain": -1.0, "low": -1.0, "high": -1.0, "p": 0.00019998, "n": 12345, "seeds": []}
TRAINED = VALUES | {"seeds": [0.955, 0.5, 1.0]}


def test_the_table_shows_arms_with_their_runs_and_whom_trained_is_compared_with() -> None:
    names = ("answer_f1", "answer_em", "all_gold", "recall", "given_all_gold")
    arms = {"frozen": dict.fromkeys(names, VALUES), "trained": dict.fromkeys(names, TRAINED)}
    gain = GAIN | {"seeds": [-1.0] * 3, "family": {"low": -1.0, "high": -0.5, "p": 0.004, "of": 1}}
    text = table({"arms": arms, "paired": {}, "contrasts": {"trained-frozen": {"answer_f1": gain}}})
    lines = text.split("\n")
    assert len(lines) == 7 and max(map(len, lines)) <= 100
    assert lines[1].split() == ["frozen", "50.0", "[25.0,", "100.0]", "50.0", "50.0", "50.0", "12345"]
    assert lines[2].split()[4:9] == ["3:", "50.0", "to", "100.0", "50.0"]
    assert lines[4].split() == ["trained", "against", "points", "[95", "%]", "p"]
    assert lines[5].split() == ["frozen", "-100.0", "[-100.0,", "-50.0]", "0.004"]
    assert lines[6] == ("Intervals are over 3 seeds and all questions.")


def test_one_run_is_said_and_has_no_p() -> None:
    arms = {"bm25": {"recall": VALUES}, "trained": {"recall": VALUES | {"seeds": [0.5]}}}
    gain = {key: value for key, value in GAIN.items() if key != "p"} | {"seeds": [-1.0]}
    text = table({"arms": arms, "paired": {}, "contrasts": {"trained-bm25": {"recall": gain}}})
    assert text.count("1 run") == 3 and "0.0002" not in text and "say nothing\nof other seeds" in text
    shown = table({"arms": arms, "paired": {}, "contrasts": {"trained-bm25": {"recall": gain}}}, markdown=True)
    assert "\n\nTrained arms have 1 run" in shown and "say nothing of other seeds" in shown


def test_without_trained_the_table_shows_gains_over_the_baseline() -> None:
    names = ("all_gold", "recall", "recall_at_2", "recall_at_5", "given_all_gold")
    arms = {"frozen": dict.fromkeys(names, VALUES), "history": dict.fromkeys(names, VALUES)}
    text = table({"arms": arms, "paired": {"history": {"all_gold": GAIN}}})
    assert text.split("\n")[0].startswith("arm      all gold found % [95 %]")
    assert " R@2   R@5  given gold " in text and max(map(len, text.split("\n"))) <= 100
    assert "over frozen" in text and "-100.0 [-100.0, -100.0]  0.0002" in text
    picked = table({"arms": {"bm25": {"recall": VALUES}, "trained": {}}, "paired": {}})
    assert "recall % [95 %]" in picked and "points" not in picked and "answer" not in picked
    arms = {"frozen": {"recall": VALUES}, "trained": {"recall": TRAINED}}
    text = table({"arms": arms, "paired": {"trained": {"recall": GAIN}}})
    assert "over frozen" in text and "trained against" not in text


def test_every_setting_has_a_table_and_their_mixture_none() -> None:
    own = {"arms": {"frozen": {"recall": VALUES | {"n": 30}}}, "paired": {}}
    text = table({**own, "settings": {"hotpotqa distractor": own, "musique": own}})
    heads = [line for line in text.split("\n") if "frozen" not in line and "arm" not in line and line]
    assert heads == ["hotpotqa distractor", "musique"]
    assert text.count("frozen") == 2 and "12345" not in text


def test_kinds_are_shown_with_n_and_the_best_other_arm() -> None:
    arms = {"frozen": {"recall": VALUES}, "trained": {"recall": TRAINED}}
    of_2hop = {arm: VALUES | {"mean": mean} for arm, mean in (("frozen", 0.7), ("oracle_query", 0.9), ("trained", 0.6))}
    gains = {"trained-frozen": {"recall": GAIN}}
    text = table({"arms": arms, "paired": {}, "contrasts": gains, "kinds": {"2hop": of_2hop}})
    assert text.split("\n")[-1].split() == ["2hop", "12345", "60.0", "frozen", "70.0"]


def test_a_deep_ranking_is_led_by_ndcg() -> None:
    names = ("all_gold", "recall", "recall_at_5", "recall_at_10", "ndcg_at_10", "reciprocal_rank")
    text = table({"arms": {"frozen": dict.fromkeys(names, VALUES)}, "paired": {}})
    assert text.split("\n")[0].split() == "arm nDCG@10 % [95 %] runs RR R@10 recall n".split()
