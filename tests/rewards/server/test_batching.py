"""The queue: everything leaves once, in order, in batches that are full or overdue."""

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from mmrl.rewards.server.reward_worker import Queue
from mmrl.types import Sample


def samples(number: int) -> list[Sample]:
    return [Sample("", str(n)) for n in range(number)]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 9), max_size=12), st.integers(1, 7))
def test_every_sample_leaves_once_and_in_order(sizes: list[int], most: int) -> None:
    async def run() -> None:
        queue = Queue(most, 0.0)
        wanted = [outcome for size in sizes for outcome in queue.put(samples(size))]
        batches = []
        while len(queue):
            batches.append(await queue.next_batch())
        assert all(len(batch) == most for batch in batches[:-1])
        assert [place.outcome for batch in batches for place in batch] == wanted

    asyncio.run(run())


def test_a_full_batch_leaves_at_once_and_a_lone_sample_when_its_time_is_over() -> None:
    async def run() -> None:
        queue, loop = Queue(4, 0.2), asyncio.get_running_loop()
        started = loop.time()
        asyncio.get_running_loop().call_later(0.05, queue.put, samples(5))
        assert len(await queue.next_batch()) == 4 and loop.time() - started < 0.2
        assert len(await queue.next_batch()) == 1 and loop.time() - started >= 0.25

    asyncio.run(run())


def test_what_nobody_waits_for_is_left_out() -> None:
    async def run() -> None:
        queue = Queue(4, 0.0)
        first, *_ = queue.put(samples(4))
        first.cancel()
        assert len(queue) == 4 and len(await queue.next_batch()) == 3

    asyncio.run(run())
