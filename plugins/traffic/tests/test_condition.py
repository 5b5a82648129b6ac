"""What a log says of a candidate is a condition of its promotion; one that cannot judge it is no yes."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from harr_traffic import condition
from harr_traffic.estimate import Estimate
from harr_traffic.replay import Replayed

from harr.report.promotion import failures

CANDIDATE = SimpleNamespace(name="harr", version="2")


def test_what_traffic_says_of_a_candidate_is_a_condition(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(condition, "resolve", lambda client, uri: uri)
    monkeypatch.setattr(condition, "fetch", lambda client, uri, cache: tmp_path / uri.rpartition("/")[2])
    log = str(tmp_path / "log")
    assert f"traffic: found {log} holds no searches-*.jsonl" in failures([condition.gain(None, CANDIDATE, {}, log=log)])

    def replayed(gain: float) -> Any:
        one = Estimate(0.5, 0.4, 0.6, gain, gain - 0.1, gain + 0.1)

        def found(log: Path, model: str, project: Path) -> Replayed:
            assert model == str(tmp_path / "2")
            return Replayed(90, 80.0, 0.0, (0.5, 0.4, 0.6), {"dr": one})

        return found

    monkeypatch.setattr(condition, "replayed", replayed(-0.01))
    verdict = condition.gain(None, CANDIDATE, {}, log=log)
    assert not verdict.passed and verdict.found == "-0.010 [-0.110, +0.090] in 90 searches"
    monkeypatch.setattr(condition, "replayed", replayed(0.0))
    assert condition.gain(None, CANDIDATE, {}, log=log).passed
