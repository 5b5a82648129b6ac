"""Requests that arrive together are answered together, in order; a failure affects no other; an excess is refused."""

import asyncio
import threading
from collections.abc import Sequence

import pytest

from harr.errors import ServiceUnavailable
from harr.serve.microbatch import MicroBatcher, Overloaded


class Slow:
    """Answers n with 2 n once allowed; records batch sizes."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.may = threading.Event()
        self.begun = False

    def __call__(self, items: Sequence[int]) -> list[int]:
        self.begun = True
        self.may.wait(30)
        self.sizes.append(len(items))
        if 13 in items:
            raise ValueError("unlucky")
        if 17 in items:
            raise ServiceUnavailable("Milvus is away")
        return [2 * item for item in items]


async def asked(batches: MicroBatcher[int, int], *requests: list[int]) -> list[list[int] | BaseException]:
    return await asyncio.gather(*(batches.ask(one) for one in requests), return_exceptions=True)


async def behind(batches: MicroBatcher[int, int], slow: Slow, *requests: list[int]) -> list[list[int] | BaseException]:
    """Send requests while the worker is busy with another one."""
    first = asyncio.ensure_future(batches.ask([0]))
    while batches.waiting or not slow.begun:
        await asyncio.sleep(0.01)
    others = asyncio.ensure_future(asked(batches, *requests))
    while batches.waiting < sum(map(len, requests)):
        await asyncio.sleep(0.01)
    slow.may.set()
    assert await first == [0]
    return await others


def test_what_comes_while_the_worker_is_at_work_is_a_batch_in_order() -> None:
    slow = Slow()
    batches = MicroBatcher(slow, most=8, window_seconds=0.0)
    assert asyncio.run(behind(batches, slow, [1], [2, 3], [], [4])) == [[2], [4, 6], [], [8]]
    assert slow.sizes == [1, 4]
    batches.close()
    with pytest.raises(ServiceUnavailable, match="this server is stopping"):
        asyncio.run(batches.ask([1]))


def test_who_asks_alone_waits_for_nobody_and_clients_of_a_batch_stay_together() -> None:
    slow = Slow()
    slow.may.set()
    batches = MicroBatcher(slow, window_seconds=60.0)

    async def play() -> None:
        for n in range(3):
            assert await asyncio.wait_for(batches.ask([n]), 30) == [2 * n]
        await asyncio.wait_for(asked(batches, [1, 2, 3]), 30)
        waiting = asyncio.ensure_future(batches.ask([1, 2]))
        await asyncio.sleep(0.2)
        assert not waiting.done()  # the third of the previous batch may still come
        assert await asyncio.wait_for(batches.ask([3]), 30) == [6] and await waiting == [2, 4]

    asyncio.run(play())
    assert slow.sizes == [1, 1, 1, 3, 3]
    batches.close()


def test_while_a_server_behind_is_away_all_that_wait_get_the_error_at_once() -> None:
    slow = Slow()
    batches = MicroBatcher(slow, most=2, window_seconds=0.0)
    errors = asyncio.run(behind(batches, slow, [17], [1], [2], [3]))
    assert [str(one) for one in errors] == ["Milvus is away"] * 4
    assert slow.sizes == [1, 2] and batches.waiting == 0  # none was asked alone
    assert asyncio.run(batches.ask([4])) == [8]
    batches.close()


def test_a_long_request_is_cut_into_batches_and_one_that_fails_spoils_no_other() -> None:
    slow = Slow()
    batches = MicroBatcher(slow, most=8, window_seconds=0.0)
    first, second, third = asyncio.run(behind(batches, slow, [1], [13], [2]))
    assert first == [2] and third == [4] and isinstance(second, ValueError)
    [found] = asyncio.run(asked(batches, list(range(100, 130))))
    assert found == [2 * n for n in range(100, 130)] and max(slow.sizes) == 8
    batches.close()


def test_what_finds_no_room_is_refused_and_what_waits_is_answered_at_the_end() -> None:
    slow = Slow()
    batches = MicroBatcher(slow, most=2, room=4, window_seconds=0.0)

    async def play() -> tuple[list[list[int]], Overloaded]:
        waiting = [asyncio.ensure_future(batches.ask([0]))]
        await asyncio.sleep(0.2)  # the worker has taken it, and waits
        waiting += [asyncio.ensure_future(batches.ask([n])) for n in range(1, 5)]
        await asyncio.sleep(0)
        assert batches.waiting == 4
        with pytest.raises(Overloaded, match=r"4 searches are waiting; try again in 1 s") as caught:
            await batches.ask([7, 8, 9])
        slow.may.set()
        batches.close()
        return await asyncio.gather(*waiting), caught.value

    answers, refused = asyncio.run(play())
    assert answers == [[2 * n] for n in range(5)] and refused.seconds >= 1
