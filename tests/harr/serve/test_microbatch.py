"""What comes in together is answered together, in order; one failure spoils no other; what is too much is refused."""

import asyncio
import threading
from collections.abc import Sequence

import pytest

from harr.serve.microbatch import MicroBatcher, Overloaded


class Slow:
    """Answers n by 2 n, once it may; keeps the sizes of batches."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.may = threading.Event()

    def __call__(self, items: Sequence[int]) -> list[int]:
        self.may.wait(30)
        self.sizes.append(len(items))
        if 13 in items:
            raise ValueError("unlucky")
        return [2 * item for item in items]


async def asked(batches: MicroBatcher[int, int], *requests: list[int]) -> list[list[int] | BaseException]:
    return await asyncio.gather(*(batches.ask(one) for one in requests), return_exceptions=True)


def test_requests_of_a_moment_are_a_batch_in_order() -> None:
    slow = Slow()
    batches = MicroBatcher(slow, most=8, window_seconds=0.2)
    slow.may.set()
    assert asyncio.run(asked(batches, [1], [2, 3], [], [4])) == [[2], [4, 6], [], [8]]
    assert slow.sizes == [4]
    batches.close()


def test_a_long_request_is_cut_into_batches() -> None:
    slow = Slow()
    slow.may.set()
    batches = MicroBatcher(slow, most=8, window_seconds=0.05)
    [found] = asyncio.run(asked(batches, list(range(100, 130))))
    assert found == [2 * n for n in range(100, 130)] and max(slow.sizes) == 8
    batches.close()


def test_one_that_fails_does_not_spoil_the_others() -> None:
    slow = Slow()
    slow.may.set()
    batches = MicroBatcher(slow, window_seconds=0.2)
    first, second, third = asyncio.run(asked(batches, [1], [13], [2]))
    assert first == [2] and third == [4] and isinstance(second, ValueError)
    batches.close()


def test_what_finds_no_room_is_refused_and_what_waits_is_answered_at_the_end() -> None:
    slow = Slow()
    batches = MicroBatcher(slow, most=2, room=4, window_seconds=0.0)

    async def play() -> tuple[list[list[int]], Overloaded]:
        waiting = [asyncio.ensure_future(batches.ask([0]))]
        await asyncio.sleep(0.2)  # the worker has taken it, and stands still
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
