"""Cached completions: nothing is asked twice, by any stage or after any kill."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from harr.rag.generation import cache
from harr.rag.generation.cache import CachedGenerator
from harr.types import Generate, TruncatedCompletion


class Clerk:
    """Numbers its answers, so a repeated one must be cached; may die at one of them."""

    def __init__(self, dies_at: int = -1) -> None:
        self.asked, self.dies_at = 0, dies_at

    def complete(self, requests: Sequence[Generate]) -> list[str]:
        answers = []
        for request in requests:
            if self.asked == self.dies_at:
                raise ConnectionError
            answers.append(f"{request.prompt} {self.asked}")
            self.asked += 1
        return answers

    def usage(self) -> dict[str, float]:
        return {"requests": float(self.asked)}


def asks(*prompts: str) -> list[Generate]:
    return [Generate(prompt=prompt) for prompt in prompts]


def test_a_later_stage_asks_only_what_is_new(tmp_path: Path) -> None:
    first, second = Clerk(), Clerk()
    before = CachedGenerator(first, tmp_path / "known.sqlite").complete(asks("a", "b", "a"))
    later = CachedGenerator(second, tmp_path / "known.sqlite")
    assert before == ["a 0", "b 1", "a 0"]
    assert later.complete(asks("b", "c", "a")) == ["b 1", "c 0", "a 0"]
    assert later.usage() == {"requests": 1.0, "cached": 2.0}


def test_what_is_not_to_be_kept_is_asked_again_also_where_it_was_kept_before(tmp_path: Path) -> None:
    CachedGenerator(Clerk(), tmp_path / "known.sqlite").complete(asks("a", "b"))
    clerk = Clerk()
    for _ in range(2):
        picky = CachedGenerator(clerk, tmp_path / "known.sqlite", lambda request, text: text != "a 0")
        assert picky.complete(asks("b", "a"))[0] == "b 1"
        clerk.asked = 0
    assert picky.usage()["cached"] == 1.0


def test_stop_strings_and_messages_are_part_of_a_request(tmp_path: Path) -> None:
    clerk = CachedGenerator(Clerk(), tmp_path / "known.sqlite")
    chat = Generate(({"role": "user", "content": "a"},))
    plain = [Generate(prompt="a", stop=("x",)), Generate(prompt="a")]
    assert len(set(clerk.complete([chat, *plain]))) == 3


def test_what_was_cut_off_is_remembered_as_cut_off(tmp_path: Path) -> None:
    class Cutter(Clerk):
        def complete(self, requests: Sequence[Generate]) -> list[str]:
            return [TruncatedCompletion(text) if text.startswith("a") else text for text in super().complete(requests)]

    for cached in (0.0, 2.0):
        remembers = CachedGenerator(Cutter(), tmp_path / "known.sqlite")
        found = remembers.complete(asks("a", "b"))
        assert found == ["a 0", "b 1"] and [isinstance(text, TruncatedCompletion) for text in found] == [True, False]
        assert remembers.usage()["cached"] == cached


def test_what_was_answered_before_a_kill_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "BATCH", 2)
    with pytest.raises(ConnectionError):
        CachedGenerator(Clerk(dies_at=5), tmp_path / "known.sqlite").complete(asks(*"abcdef"))
    clerk = Clerk()
    found = CachedGenerator(clerk, tmp_path / "known.sqlite").complete(asks(*"abcdef"))
    assert found[:4] == ["a 0", "b 1", "c 2", "d 3"] and clerk.asked == 2


def test_a_file_that_another_process_has_locked_is_not_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda path, timeout: connect(path, timeout=0.01))
    known = CachedGenerator(Clerk(), tmp_path / "known.sqlite")
    with closing(connect(tmp_path / "known.sqlite")) as store, store:
        store.execute("BEGIN EXCLUSIVE")
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            known.complete(asks("a"))
    assert [path.name for path in tmp_path.iterdir()] == ["known.sqlite"]
