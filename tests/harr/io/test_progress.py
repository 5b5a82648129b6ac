"""A loop that is asked to stop ends its unit and begins no other."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from harr.io import progress


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


def test_a_loop_that_an_exception_ends_is_no_loop() -> None:
    def work() -> None:
        for _ in progress.stoppable(range(5)):
            assert progress._Stop.loops == 1
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as kept:  # the error keeps the frame of the loop
        work()
    assert kept.traceback and progress._Stop.loops == 0
    with pytest.raises(ZeroDivisionError), closing(progress.stoppable(range(5))) as steps:
        assert next(steps) == 0 and progress._Stop.loops == 1
        raise ZeroDivisionError
    assert progress._Stop.loops == 0 and not progress.ask_to_stop(leave)


def test_nobody_waits_where_no_such_loop_runs() -> None:
    assert list(progress.stoppable("ab")) == ["a", "b"]
    assert not progress.ask_to_stop(leave)
