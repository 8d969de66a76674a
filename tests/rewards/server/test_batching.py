"""The queue: everything leaves once, in order, in batches that are full or overdue."""

import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mmrl.rewards.server.batching import Full, Queue
from mmrl.types import Sample


def samples(number: int) -> list[Sample]:
    return [Sample("", str(n)) for n in range(number)]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 9), max_size=12), st.integers(1, 7))
def test_every_sample_leaves_once_and_in_order(sizes: list[int], batch: int) -> None:
    queue = Queue(batch, 0.0, 1000)
    tickets = [queue.put(samples(size)) for size in sizes]
    queue.close()
    batches = list(queue.batches())
    assert all(len(each) == batch for each in batches[:-1])
    places = [place for each in batches for place in each]
    assert places == [(ticket, n) for ticket in tickets for n in range(len(ticket.samples))]
    for ticket, n in places:
        assert ticket.done.done() is False
        ticket.settle(n, float(n))
    for ticket, size in zip(tickets, sizes, strict=True):
        assert ticket.done.done() and ticket.outcomes == {n: float(n) for n in range(size)}


def test_a_full_batch_leaves_at_once_and_a_lone_sample_when_its_time_is_over() -> None:
    queue, taken = Queue(4, 0.2, 100), []

    def take() -> None:
        for batch in queue.batches():
            taken.append((time.monotonic(), len(batch)))

    worker = threading.Thread(target=take)
    worker.start()
    start = time.monotonic()
    queue.put(samples(5))
    time.sleep(0.1)
    assert [size for _, size in taken] == [4]
    time.sleep(0.4)
    queue.put(samples(2))
    queue.close()
    worker.join()
    assert [size for _, size in taken] == [4, 1, 2]
    assert taken[1][0] - start >= 0.2, "it waited for others"


def test_requests_gather_while_one_is_scored() -> None:
    queue = Queue(4, 0.0, 100)
    queue.put(samples(1))
    batches = queue.batches()
    assert len(next(batches)) == 1
    for _ in range(3):
        queue.put(samples(1))
    assert len(next(batches)) == 3


def test_what_nobody_waits_for_is_left_out() -> None:
    queue = Queue(4, 0.0, 100)
    given_up, kept = queue.put(samples(3)), queue.put(samples(2))
    given_up.dropped = True
    queue.close()
    assert list(queue.batches()) == [[(kept, 0), (kept, 1)]]


def test_too_much_is_refused_whole() -> None:
    queue = Queue(4, 0.0, 5)
    queue.put(samples(3))
    with pytest.raises(Full):
        queue.put(samples(3))
    assert len(queue) == 3
    queue.put(samples(2))
