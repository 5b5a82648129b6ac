"""What every rule keeps of the picks of a log, and how that is scored."""

from harr_lengths.picks import count_needed, cut_row, keep_picks
from picked import FOUND, LATE, NEVER


def test_what_every_rule_keeps() -> None:
    assert {rule: keep_picks(LATE, rule, 2) for rule in ("all", "value", "picks", "early_stop", "gold")} == {
        "all": [0, 1, 2],
        "value": [],
        "picks": [0, 1],
        "early_stop": [0, 1, 2],
        "gold": [0, 2],
    }
    assert keep_picks(FOUND, "value", 0.5) == [0, 1] and keep_picks(LATE, "value", 0.5) == [0]
    assert [count_needed(one) for one in (FOUND, LATE, NEVER)] == [2, 3, None]
    assert keep_picks(NEVER, "early_stop") == [0, 1, 2], "what was never found ends nothing"


def test_a_line_is_scored_by_what_is_left_of_it() -> None:
    short = cut_row(FOUND, "value", 0.5)
    assert (short["picked"], short["texts"]) == ([1, 4], ["sentence 1", "sentence 4"])
    assert (short["fact_em"], short["fact_f1"]) == (1.0, 1.0)
    nothing = cut_row(FOUND, "value", 2.0)
    assert (nothing["picked"], nothing["fact_em"], nothing["fact_f1"]) == ([], 0.0, 0.0)
