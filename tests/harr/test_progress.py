"""A loop that is asked to stop ends its unit and begins no other."""

from collections.abc import Iterator

import pytest

from harr import progress


@pytest.fixture(autouse=True)
def nobody_asked() -> Iterator[None]:
    yield
    progress._Stop.leave = None


def leave() -> None:
    raise SystemExit(143)


def test_a_stop_waits_for_the_end_of_the_unit() -> None:
    begun, ended = [], []
    with pytest.raises(SystemExit, match="143"):
        for unit in progress.stoppable(range(5)):
            begun.append(unit)
            if unit == 2:
                assert progress.ask_to_stop(leave) and progress.stop_asked()
                assert not progress.ask_to_stop(leave)  # a second wish does not wait
            ended.append(unit)
    assert begun == ended == [0, 1, 2]


def test_nobody_waits_where_no_such_loop_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress._Stop, "loops", 0)  # a training that another test broke off may still hold its loop
    assert list(progress.stoppable("ab")) == ["a", "b"]
    assert not progress.ask_to_stop(leave)
