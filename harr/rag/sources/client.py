"""A source that is asked query by query: side by side, with a deadline, retries and a memory."""

import json
import math
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from harr.errors import HarrError, ServiceUnavailable, one_line
from harr.io.retry import retry
from harr.io.shared_table import SharedTable
from harr.rag.sources.providers import BatchSearchFn, SearchFn, passages_of, record, recorded, rows_of
from harr.types import Passage, Retrieval, Search

REST_SECONDS = 60.0
"""Seconds that a source that hangs is left alone."""
RETRIED = 0.8
"""Share of the deadline in which a source is asked again, so that its reason comes before the deadline does."""
Key = tuple[str, int]
"""A query, and how many passages are wanted."""
Answer = tuple[Passage, ...] | Exception
_Request = tuple[Key, ...]


class WebSource:
    """A source that ``search`` asks; every failure is a :class:`Retrieval` with its reason, never an exception.

    All distinct queries of a call are asked at once, up to ``concurrency`` at a time; of a ``batched`` source all those
    that want as many passages are one request. A request is given up after
    ``deadline_seconds``, whatever its function does meanwhile. Where the source has then answered nothing since the
    query was sent, it hangs or is down: what is not yet sent is not sent any more, and for ``REST_SECONDS`` no other
    call asks it either, so that such a source costs its deadline once. ``ServiceUnavailable`` is tried again within the
    deadline, after growing, jittered pauses.

    Answers are remembered in ``cache`` (a file that belongs to this source and its settings), failures never.
    Delete the file to ask anew. ``tape``: a recording that all answers are added to.

    >>> from harr.types import Question
    >>> source = WebSource("General", lambda query, k: [Passage(query, query.upper())], k=2, deadline_seconds=5.0)
    >>> [found] = source.retrieve([Search(Question("q", "Who?"), "ada")])
    >>> found.passages[0].text, source.usage()["asked"]
    ('ADA', 1.0)
    """

    def __init__(
        self,
        tool: str,
        search: SearchFn | BatchSearchFn,
        *,
        k: int,
        deadline_seconds: float,
        batched: bool = False,
        concurrency: int = 16,
        cache: Path | None = None,
        tape: Path | None = None,
    ) -> None:
        self.tool, self.k = tool, k
        self._search: Any = search if batched else lambda queries, k: [search(queries[0], k)]
        self._batched, self._deadline, self._concurrency = batched, deadline_seconds, concurrency
        self._cache = Remembered(cache, tool) if cache else None
        self._tape = tape
        self._recorded = recorded(tape, tool) if tape else set()
        self._rests_until = -math.inf
        self._usage: Counter[str] = Counter(asked=0, cached=0, failed=0, timed_out=0)

    def usage(self) -> Mapping[str, float]:
        """Return counts: queries ``asked``, answers ``cached``, queries ``failed`` and, of those, ``timed_out``."""
        return {name: float(count) for name, count in self._usage.items()}

    def retrieve(self, searches: Sequence[Search]) -> list[Retrieval]:
        """Return one retrieval per search, in order; fewer passages where some of them are excluded."""
        keys = [(search.query, search.k or self.k) for search in searches]
        distinct = list(dict.fromkeys(keys))
        known: dict[Key, tuple[Passage, ...]] = self._cache.look_up(distinct) if self._cache else {}
        self._usage["cached"] += sum(key in known for key in keys)
        answers: dict[Key, Answer] = dict(known)
        try:
            self._ask_all([key for key in distinct if key not in known], answers)
        finally:  # what was answered before a person stopped the run is kept, too
            self._keep({key: answer for key, answer in answers.items() if isinstance(answer, tuple)}, known)
        return [_retrieval(search, answers[key]) for search, key in zip(searches, keys, strict=True)]

    def _ask_all(self, keys: Sequence[Key], answers: dict[Key, Answer]) -> None:
        """Add the answer of every key to ``answers``."""
        if time.monotonic() < self._rests_until:
            answers |= dict.fromkeys(keys, ServiceUnavailable("not asked, since it had not answered before"))
            self._usage["failed"] += len(keys)
            return
        todo, under_way = list(reversed(self._requests(keys))), dict[_Request, float]()
        came: SimpleQueue[tuple[_Request, list[Answer]]] = SimpleQueue()
        heard = -math.inf  # when the source last answered
        while todo or under_way:
            while todo and len(under_way) < self._concurrency:
                request = todo.pop()
                under_way[request] = time.monotonic()
                # A daemon: one that never comes back must not keep the process from ending.
                threading.Thread(target=self._one, args=(request, came), daemon=True).start()
                self._usage["asked"] += len(request)
            sent = next(iter(under_way.values()))  # of the one that waits longest
            try:
                request, found = came.get(timeout=max(0.0, sent + self._deadline - time.monotonic()))
            except Empty:
                request = next(iter(under_way))
                found = [ServiceUnavailable(f"no answer within {self._deadline:g} s")] * len(request)
                self._usage["timed_out"] += len(request)
            if request not in under_way:
                continue  # it comes too late
            sent = under_way.pop(request)
            answers |= zip(request, found, strict=True)
            if not isinstance(found[0], ServiceUnavailable):
                heard = time.monotonic()
            elif heard < sent:
                refused = ServiceUnavailable(f"not asked, since others had: {found[0]}")
                answers |= {key: refused for request in todo for key in request}
                todo.clear()
                self._rests_until = time.monotonic() + REST_SECONDS
        self._usage["failed"] += sum(isinstance(answers[key], Exception) for key in keys)

    def _requests(self, keys: Sequence[Key]) -> list[_Request]:
        """Return the keys as they are asked: each alone or, of a batched source, all of the same number of passages."""
        if not self._batched:
            return [(key,) for key in keys]
        return [tuple(key for key in keys if key[1] == k) for k in dict.fromkeys(k for _, k in keys)]

    def _one(self, request: _Request, came: "SimpleQueue[tuple[_Request, list[Answer]]]") -> None:
        """Ask until there is an answer, a refusal, or no time left."""
        queries, k = [query for query, _ in request], request[0][1]
        answers: list[Answer]
        try:
            found = retry(lambda: self._search(queries, k), RETRIED * self._deadline, first=0.25)
            answers = [tuple(map(self._own, passages))[:k] for passages in found]
        except Exception as error:  # of whatever the source is made of
            answers = [error] * len(request)
        came.put((request, answers))

    def _own(self, passage: Passage) -> Passage:
        """Return a passage as it can be kept and shown: half a character (a lone surrogate) is "?"."""
        own = [text.encode("utf-8", "replace").decode() for text in (passage.id, passage.text, passage.title)]
        return Passage(own[0], own[1], own[2], self.tool)

    def _keep(self, found: Mapping[Key, tuple[Passage, ...]], known: Mapping[Key, tuple[Passage, ...]]) -> None:
        date = datetime.now(UTC).date().isoformat()
        if self._cache:
            self._cache.keep({key: passages for key, passages in found.items() if key not in known}, date)
        if self._tape:
            new = {query: passages for (query, _), passages in found.items() if query not in self._recorded}
            record(self._tape, self.tool, new, date)
            self._recorded |= set(new)


def _retrieval(search: Search, answer: Answer) -> Retrieval:
    if isinstance(answer, tuple):
        return Retrieval(tuple(passage for passage in answer if passage.id not in search.exclude_ids))
    reason = one_line(answer)
    return Retrieval((), error=reason if isinstance(answer, HarrError) else f"{type(answer).__name__}: {reason}")


class Remembered:
    """An SQLite file of the answers that one source gave before, each with the date on which it did."""

    def __init__(self, path: Path, tool: str) -> None:
        columns = "(query TEXT, k INTEGER, date TEXT, passages TEXT, PRIMARY KEY (query, k))"
        self._table, self._tool = SharedTable(path, f"searches {columns}"), tool

    def look_up(self, keys: Sequence[Key]) -> dict[Key, tuple[Passage, ...]]:
        """Return the answers there are."""
        one = "SELECT passages FROM searches WHERE query = ? AND k = ?"
        texts = self._table.do(lambda store: {key: store.execute(one, key).fetchone() for key in keys})
        return {
            key: tuple(passages_of(json.loads(row[0]), self._tool, str(self._table.path)))
            for key, row in texts.items()
            if row
        }

    def keep(self, answers: Mapping[Key, Sequence[Passage]], date: str) -> None:
        """Add answers."""
        rows = [(*key, date, json.dumps(rows_of(passages), ensure_ascii=False)) for key, passages in answers.items()]
        self._table.do(lambda store: store.executemany("INSERT OR REPLACE INTO searches VALUES (?, ?, ?, ?)", rows))
