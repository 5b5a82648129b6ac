"""A bar moves and ends as text; a loop asked to stop finishes its unit and begins no other."""

import re
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from io import StringIO

import pytest

from harr.io import progress


@pytest.fixture(autouse=True)
def nobody_asked() -> Iterator[None]:
    yield
    progress._Stop.leave = None


def leave() -> None:
    raise SystemExit(143)


def test_a_stop_waits_for_the_end_of_the_unit() -> None:
    assert list(progress.stoppable("ab")) == ["a", "b"]
    begun, ended = [], []
    with pytest.raises(SystemExit, match="143"):
        for unit in progress.stoppable(range(5)):
            begun.append(unit)
            if unit == 2:
                assert progress.ask_to_stop(leave) and progress.should_stop()
                assert not progress.ask_to_stop(leave)  # a second request does not wait
            ended.append(unit)
    assert begun == ended == [0, 1, 2]


def test_a_loop_that_an_exception_ends_is_no_loop() -> None:
    def work() -> None:
        for _ in progress.stoppable(range(5)):
            assert progress._Stop.loops == 1
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as kept:  # the error keeps the loop's frame
        work()
    assert kept.traceback and progress._Stop.loops == 0
    with pytest.raises(ZeroDivisionError), closing(progress.stoppable(range(5))) as steps:
        assert next(steps) == 0 and progress._Stop.loops == 1
        raise ZeroDivisionError
    assert progress._Stop.loops == 0 and not progress.ask_to_stop(leave)


class Screen(StringIO):
    """A stderr that is or is not a terminal."""

    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal


def watched(monkeypatch: pytest.MonkeyPatch, terminal: bool, moved: Callable[[str], bool]) -> str:
    """Return what a bar over two steps shows; the first lasts until ``moved``, at most 20 s."""
    screen = Screen(terminal)
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setattr(progress, "BEAT_SECONDS", 0.01)
    monkeypatch.setattr(progress, "LOG_SECONDS", 0.03)
    monkeypatch.setenv("COLUMNS", "60")
    end = time.monotonic() + 20
    with progress.bar(total=2, desc="train", unit="step") as shown:
        while not moved(screen.getvalue()) and time.monotonic() < end:
            time.sleep(0.005)
        shown.update()
        shown.set_postfix(reward="0.5", refresh=False)
        shown.update()
    return re.sub(r"\d+:\d\d|[\d.,]+(/s$|/s,| s/)", "_", screen.getvalue())


def test_a_bar_moves_while_one_step_lasts_and_a_log_gets_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = watched(monkeypatch, True, lambda text: text.count("0/2") > 3)
    assert shown.count("0/2") > 3 and "\r" in shown
    assert shown.endswith("train: 2 steps in _, _ reward=0.5\n")
    lines = watched(monkeypatch, False, lambda text: text.count("\n") > 1).splitlines()
    assert lines[:2] == ["train: 0 of 2 steps in _"] * 2
    assert lines[-1] == "train: 2 steps in _, _ reward=0.5" and not [line for line in lines if "\r" in line]
