"""Batch requests that arrive within a few milliseconds: one forward pass, one scan of the index."""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Generic, TypeVar

from harr.errors import ServiceUnavailable

Item = TypeVar("Item")
Result = TypeVar("Result")


class Overloaded(Exception):
    """The queue is full; ``seconds`` is about how long it takes to empty."""

    def __init__(self, waiting: int, seconds: float) -> None:
        super().__init__(f"{waiting} searches are waiting; try again in {seconds:.0f} s")
        self.seconds = seconds


class MicroBatcher(Generic[Item, Result]):
    """A queue whose single worker thread answers all waiting requests as one batch, in order of arrival.

    Args:
        answer: answers a batch, one result per item.
        most: maximum number of items in a batch.
        room: maximum number of waiting items; a request without room is refused.
        window_seconds: how long the worker waits, at most, for as many items as the previous batch had. A lone client
            is answered at once, and clients that all ask again stay together.
    """

    def __init__(
        self,
        answer: Callable[[Sequence[Item]], Sequence[Result]],
        *,
        most: int = 64,
        room: int = 4096,
        window_seconds: float = 0.002,
    ) -> None:
        self._answer = answer
        self._most, self.room, self._window = most, room, window_seconds
        self._jobs: deque[tuple[Sequence[Item], Future[list[Result]]]] = deque()
        self._before = 0
        self.waiting = 0
        """Number of waiting items."""
        self._works = False
        self._seconds_each = 0.01
        self._changed = threading.Condition()
        self._closed = False
        self._worker = threading.Thread(target=self._work, name="search", daemon=True)
        self._worker.start()

    async def ask(self, items: Sequence[Item]) -> list[Result]:
        """Return the answers to some items, in order.

        Raises:
            Overloaded: too many items are waiting. ServiceUnavailable: the queue is closed.
        """
        parts = [items[start : start + self._most] for start in range(0, len(items), self._most)]
        jobs: list[tuple[Sequence[Item], Future[list[Result]]]] = [(part, Future()) for part in parts]
        with self._changed:
            if self._closed:
                raise ServiceUnavailable("this server is stopping")
            if self.waiting and self.waiting + len(items) > self.room:
                raise Overloaded(self.waiting, max(1.0, self.waiting * self._seconds_each))
            self._jobs += jobs
            self.waiting += len(items)
            self._changed.notify()
        return [answer for _, future in jobs for answer in await asyncio.wrap_future(future)]

    @property
    def idle(self) -> bool:
        """Return whether nothing is waiting or being answered."""
        return not (self.waiting or self._works)

    def close(self) -> None:
        """Answer the waiting items and stop."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._worker.join()

    def _work(self) -> None:
        while jobs := self._next():
            started = time.perf_counter()
            self._settle(jobs)
            count = sum(len(items) for items, _ in jobs)
            self._seconds_each += 0.1 * ((time.perf_counter() - started) / count - self._seconds_each)
            self._works = False

    def _next(self) -> list[tuple[Sequence[Item], Future[list[Result]]]]:
        """Return the next jobs, at least one, together at most one batch; [] when closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._jobs or self._closed)
            until = time.monotonic() + self._window
            while (
                self.waiting < min(self._before, self._most)
                and not self._closed
                and (seconds := until - time.monotonic()) > 0
            ):
                self._changed.wait(seconds)
            jobs: list[tuple[Sequence[Item], Future[list[Result]]]] = []
            count = 0
            while self._jobs and (not jobs or count + len(self._jobs[0][0]) <= self._most):
                jobs.append(self._jobs.popleft())
                count += len(jobs[-1][0])
            self.waiting -= count
            self._before = count
            self._works = bool(jobs)
            return jobs

    def _settle(self, jobs: list[tuple[Sequence[Item], Future[list[Result]]]]) -> None:
        """Answer jobs together; if that fails, each separately, so that one does not spoil the others.

        If a server behind this one is away, these and all waiting jobs fail at once.
        """
        live = [job for job in jobs if job[1].set_running_or_notify_cancel()]
        try:
            answers = list(self._answer([item for items, _ in live for item in items]))
        except ServiceUnavailable as error:
            self._refuse(live, error)
            return
        except Exception as error:
            for number, (items, future) in enumerate(live):
                try:
                    future.set_result(list(self._answer(items))) if len(live) > 1 else future.set_exception(error)
                except ServiceUnavailable as away:
                    self._refuse(live[number:], away)
                    return
                except Exception as failure:
                    future.set_exception(failure)
            return
        at = 0
        for items, future in live:
            future.set_result(answers[at : at + len(items)])
            at += len(items)

    def _refuse(self, jobs: list[tuple[Sequence[Item], Future[list[Result]]]], error: ServiceUnavailable) -> None:
        """Fail these jobs, and all waiting ones, with an error."""
        with self._changed:
            waiting = [job for job in self._jobs if job[1].set_running_or_notify_cancel()]
            self._jobs.clear()
            self.waiting = 0
        for _, future in [*jobs, *waiting]:
            future.set_exception(error)
