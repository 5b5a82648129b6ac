"""A source outside the index: concurrent queries with a deadline, retries and a cache."""

import json
import math
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from queue import Empty, SimpleQueue

from harr.errors import HarrError, ServiceUnavailable, one_line
from harr.io.retry import retry
from harr.io.shared_table import SharedTable
from harr.rag.sources.providers import SearchFn, passages_of, rows_of
from harr.types import Passage, Retrieval, Search

REST_SECONDS = 60.0
"""Seconds for which a hanging source gets no requests."""
RETRIED = 0.8
"""Share of the deadline for retries, so that the reason for a failure arrives before the deadline."""
Key = tuple[str, int]
"""A query, and the number of passages."""
Answer = tuple[Passage, ...] | Exception


class WebSource:
    """A source behind the function ``search``; a failure is a :class:`Retrieval` with a reason, never an exception.

    All distinct queries of a call are sent at once, up to ``concurrency`` at a time. A request is abandoned after
    ``deadline_seconds``. If the source has answered nothing since the query was sent, it hangs or is down: pending
    requests are dropped, and no call sends any for ``REST_SECONDS``, so such a source costs its deadline once.
    ``ServiceUnavailable`` is retried within the deadline, after growing, jittered pauses.

    Answers, but not failures, are cached in ``cache`` (a file of this source and its settings). Delete the file to
    clear it.

    >>> from harr.types import Question
    >>> source = WebSource("General", lambda query, k: [Passage(query, query.upper())], k=2, deadline_seconds=5.0)
    >>> [found] = source.retrieve([Search(Question("q", "Who?"), "ada")])
    >>> found.passages[0].text, source.usage()["asked"]
    ('ADA', 1.0)
    """

    def __init__(
        self,
        tool: str,
        search: SearchFn,
        *,
        k: int,
        deadline_seconds: float,
        concurrency: int = 16,
        cache: Path | None = None,
    ) -> None:
        self.tool, self.k = tool, k
        self._search, self._deadline, self._concurrency = search, deadline_seconds, concurrency
        self._cache = AnswerCache(cache, tool) if cache else None
        self._rests_until = -math.inf
        self._usage: Counter[str] = Counter(asked=0, cached=0, failed=0, timed_out=0)

    def usage(self) -> Mapping[str, float]:
        """Return counts: queries ``asked``, answers ``cached``, queries ``failed`` and, of those, ``timed_out``."""
        return {name: float(count) for name, count in self._usage.items()}

    def retrieve(self, searches: Sequence[Search]) -> list[Retrieval]:
        """Return one retrieval per search, in order; excluded passages are left out."""
        keys = [(search.query, search.k or self.k) for search in searches]
        distinct = list(dict.fromkeys(keys))
        cached: dict[Key, tuple[Passage, ...]] = self._cache.look_up(distinct) if self._cache else {}
        self._usage["cached"] += sum(key in cached for key in keys)
        answers: dict[Key, Answer] = dict(cached)
        try:
            self._ask_all([key for key in distinct if key not in cached], answers)
        finally:  # answers are kept even if the user stops the run
            self._keep({key: answer for key, answer in answers.items() if isinstance(answer, tuple)}, cached)
        return [_retrieval(search, answers[key]) for search, key in zip(searches, keys, strict=True)]

    def _ask_all(self, keys: Sequence[Key], answers: dict[Key, Answer]) -> None:
        """Add the answer of every key to ``answers``."""
        if time.monotonic() < self._rests_until:
            answers |= dict.fromkeys(keys, ServiceUnavailable("not asked, since it had not answered before"))
            self._usage["failed"] += len(keys)
            return
        pending, sent_at = list(reversed(keys)), dict[Key, float]()
        queue: SimpleQueue[tuple[Key, Answer]] = SimpleQueue()
        last_answer = -math.inf  # when the source last answered
        while pending or sent_at:
            while pending and len(sent_at) < self._concurrency:
                key = pending.pop()
                sent_at[key] = time.monotonic()
                # A daemon thread: one that hangs must not keep the process from ending.
                threading.Thread(target=self._ask_one, args=(key, queue), daemon=True).start()
                self._usage["asked"] += 1
            started = next(iter(sent_at.values()))  # of the query that waits longest
            try:
                key, answer = queue.get(timeout=max(0.0, started + self._deadline - time.monotonic()))
            except Empty:
                key, answer = next(iter(sent_at)), ServiceUnavailable(f"no answer within {self._deadline:g} s")
                self._usage["timed_out"] += 1
            if key not in sent_at:
                continue  # too late
            started = sent_at.pop(key)
            answers[key] = answer
            if not isinstance(answer, ServiceUnavailable):
                last_answer = time.monotonic()
            elif last_answer < started:
                error = ServiceUnavailable(f"not asked, since others had: {answer}")
                answers |= dict.fromkeys(pending, error)
                pending.clear()
                self._rests_until = time.monotonic() + REST_SECONDS
        self._usage["failed"] += sum(isinstance(answers[key], Exception) for key in keys)

    def _ask_one(self, key: Key, queue: "SimpleQueue[tuple[Key, Answer]]") -> None:
        """Send requests until there is an answer, a refusal, or no time left."""
        answer: Answer
        try:
            passages = retry(lambda: self._search(*key), RETRIED * self._deadline, first=0.25)
            answer = tuple(map(self._clean_passage, passages))[: key[1]]
        except Exception as error:  # a source may raise anything
            answer = error
        queue.put((key, answer))

    def _clean_passage(self, passage: Passage) -> Passage:
        """Return a passage with lone surrogates replaced by "?"."""
        texts = [text.encode("utf-8", "replace").decode() for text in (passage.id, passage.text, passage.title)]
        return Passage(texts[0], texts[1], texts[2], self.tool)

    def _keep(self, answers: Mapping[Key, tuple[Passage, ...]], cached: Mapping[Key, tuple[Passage, ...]]) -> None:
        if self._cache:
            date = datetime.now(UTC).date().isoformat()
            self._cache.keep({key: passages for key, passages in answers.items() if key not in cached}, date)


def _retrieval(search: Search, answer: Answer) -> Retrieval:
    if isinstance(answer, tuple):
        return Retrieval(tuple(passage for passage in answer if passage.id not in search.exclude_ids))
    reason = one_line(answer)
    return Retrieval((), error=reason if isinstance(answer, HarrError) else f"{type(answer).__name__}: {reason}")


class AnswerCache:
    """An SQLite cache of the answers of one source, each with its date."""

    def __init__(self, path: Path, tool: str) -> None:
        columns = "(query TEXT, k INTEGER, date TEXT, passages TEXT, PRIMARY KEY (query, k))"
        self._table, self._tool = SharedTable(path, f"searches {columns}"), tool

    def look_up(self, keys: Sequence[Key]) -> dict[Key, tuple[Passage, ...]]:
        """Return the cached answers."""
        statement = "SELECT passages FROM searches WHERE query = ? AND k = ?"
        texts = self._table.do(lambda store: {key: store.execute(statement, key).fetchone() for key in keys})
        return {key: tuple(passages_of(json.loads(row[0]), self._tool)) for key, row in texts.items() if row}

    def keep(self, answers: Mapping[Key, Sequence[Passage]], date: str) -> None:
        """Add answers."""
        rows = [(*key, date, json.dumps(rows_of(passages), ensure_ascii=False)) for key, passages in answers.items()]
        self._table.do(lambda store: store.executemany("INSERT OR REPLACE INTO searches VALUES (?, ?, ?, ?)", rows))
