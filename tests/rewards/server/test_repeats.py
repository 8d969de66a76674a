"""Answers that are kept: the same bytes are worked on once; errors and old ones are forgotten."""

import asyncio

import pytest

from mmrl.rewards.server.refusal import Refusal
from mmrl.rewards.server.repeats import Answer, Repeats


def test_what_comes_again_is_answered_alike_without_work() -> None:
    async def run() -> list[bytes]:
        repeats, calls = Repeats(), 0

        async def work() -> Answer:
            nonlocal calls
            calls += 1
            await asyncio.sleep(0.01)
            return Answer(f"{calls}".encode(), {}, is_final=True)

        together = await asyncio.gather(*(repeats.answer(b"k", work) for _ in range(3)))
        later = await repeats.answer(b"k", work)
        other = await repeats.answer(b"other", work)
        return [answer.body for answer in (*together, later, other)]

    assert asyncio.run(run()) == [b"1", b"1", b"1", b"1", b"2"]


def test_errors_are_tried_again() -> None:
    async def run() -> None:
        repeats, results = Repeats(), iter([None, False, True, True])

        async def work() -> Answer:
            final = next(results)
            if final is None:
                raise Refusal(429, "busy", "later")
            return Answer(b"", {}, is_final=final)

        with pytest.raises(Refusal, match="later"):
            await repeats.answer(b"k", work)
        assert [(await repeats.answer(b"k", work)).is_final for _ in range(3)] == [
            False,
            True,
            True,
        ]
        assert len(list(results)) == 1, "the third answer was kept"

    asyncio.run(run())


def test_a_client_that_goes_away_does_not_take_the_answer_from_others() -> None:
    async def run() -> bytes:
        repeats = Repeats()

        async def work() -> Answer:
            await asyncio.sleep(0.05)
            return Answer(b"done", {}, is_final=True)

        first = asyncio.ensure_future(repeats.answer(b"k", work))
        second = asyncio.ensure_future(repeats.answer(b"k", work))
        await asyncio.sleep(0.01)
        first.cancel()
        return (await second).body

    assert asyncio.run(run()) == b"done"


def test_memory_is_bounded_and_the_oldest_go_first() -> None:
    async def run() -> None:
        repeats = Repeats(max_bytes=100_000)

        async def work() -> Answer:
            return Answer(bytes(8000), {}, is_final=True)

        for n in range(50):
            await repeats.answer(bytes([n]), work)
        assert repeats.bytes <= 100_000
        assert not repeats.knows(bytes([0])) and repeats.knows(bytes([49]))

    asyncio.run(run())
