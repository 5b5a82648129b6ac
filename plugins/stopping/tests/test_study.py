"""When to stop picking: thresholds on Q, by hand and from logs."""

import json
import math
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from harr_stopping.study import auc, stopping_tables, stops, study
from picked import FOUND, LATE, NEVER, row

from harr.errors import ParamsError

ROWS = [FOUND, LATE, NEVER]


def test_a_study_counts_stories_and_lengths() -> None:
    (low, middle) = study(ROWS, "value", [0.0, 0.5], resamples=99, seed=0)
    assert (low["length"], low["late"], low["perfect"], low["early"]) == (3.0, 1 / 3, 1 / 3, 0.0)
    assert middle["length"] == pytest.approx(4 / 3) and (middle["perfect"], middle["early"]) == (1 / 3, 1 / 3)
    assert low["fact_em"][0] == pytest.approx(2 / 3) and middle["fact_em"][0] == pytest.approx(1 / 3)
    assert middle["fact_f1"][0] == pytest.approx((1.0 + 2 / 3 + 2 / 3) / 3)
    by_picks = study(ROWS, "picks", [1.0, 2.0, 3.0], resamples=99, seed=0)
    assert [one["length"] for one in by_picks] == [1.0, 2.0, 3.0] and "perfect" not in by_picks[0]
    assert [stops(one, 0.5) for one in ROWS] == ["perfect", "early", "not found"]


def test_auc_is_the_share_of_ordered_pairs_ties_half() -> None:
    tied = row([1], [1, 2, 3], [0.6, 0.6, 0.7])
    wanted, extra = [0.9, 0.8, 0.9, 0.3, 0.6, 0.6], [0.2, 0.6, 0.7]
    pairs = [(a > b) + 0.5 * (a == b) for a in wanted for b in extra]
    assert auc([FOUND, LATE, tied]) == pytest.approx(math.fsum(pairs) / len(pairs))
    assert auc([NEVER]) is None


def test_the_threshold_is_chosen_on_other_stories(tmp_path: Path) -> None:
    for name, rows in (("eval_seed1_ns9.jsonl", ROWS), ("eval_seed2_ns9.jsonl", [FOUND])):
        (tmp_path / name).write_text("".join(json.dumps(one) + "\n" for one in rows))
    tested, tuned = tmp_path / "eval_seed1_ns9.jsonl", tmp_path / "eval_seed2_ns9.jsonl"
    tables, separation = stopping_tables([tested], None, [tuned])
    assert [one["limit"] for one in tables["threshold"]] == [0.3] and separation == auc(ROWS)
    assert [one["limit"] for one in tables["picks"]] == [1.0, 2.0, 3.0]
    with pytest.raises(ParamsError, match=r"none\.jsonl: expected a log"):
        stopping_tables([tmp_path / "none.jsonl"], None, None)


def test_the_command_prints_both_tables(workplace: Path, harr: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    Path("eval_seed1_ns9.jsonl").write_text("".join(json.dumps(one) + "\n" for one in ROWS))
    done = harr("stopping", "eval_seed1_ns9.jsonl", "--thresholds", "0", "0.5")
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert [line[0] for line in lines] == ["threshold", "0.00", "0.50", "picks", "1.00", "2.00", "3.00", "AUC"]
    assert lines[2][1] == "1.33" and lines[2][-4:] == ["0.333", "0.333", "0.000", "3"]
