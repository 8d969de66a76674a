"""A repeated request is scored once.

A client that lost the answer repeats its request. The same bytes, which include its id, get the
same answer, finished or not. Answers with an error are not kept, so a repetition is a new try.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Answer:
    """The answer to a request.

    Attributes:
        body: JSON.
        fields: of the request's line in the log.
        is_final: whether a repetition gets the same answer.
    """

    body: bytes
    fields: dict[str, Any]
    is_final: bool


class Repeats:
    """The latest answers, by the digest of their request.

    Args:
        max_bytes: memory of all kept answers.
    """

    def __init__(self, max_bytes: int = 2**25) -> None:
        self.max_bytes, self.bytes = max_bytes, 0
        self._running: dict[bytes, asyncio.Task[Answer]] = {}
        self._kept: OrderedDict[bytes, Answer] = OrderedDict()

    def knows(self, key: bytes) -> bool:
        """Whether the request is a repetition."""
        return key in self._kept or key in self._running

    async def answer(self, key: bytes, work: Callable[[], Awaitable[Answer]]) -> Answer:
        """The answer to a request; `work` computes it unless it is known or being computed.

        Raises:
            Refusal: raised by `work`, for all who wait for it.
        """
        if key in self._kept:
            return self._kept[key]
        task = self._running.get(key)
        if task is None:
            task = self._running[key] = asyncio.ensure_future(self._make(key, work))
        return await asyncio.shield(task)

    async def _make(self, key: bytes, work: Callable[[], Awaitable[Answer]]) -> Answer:
        try:
            answer = await work()
        finally:
            del self._running[key]
        if answer.is_final:
            self._keep(key, answer)
        return answer

    def _keep(self, key: bytes, answer: Answer) -> None:
        self._kept[key] = answer
        self.bytes += _size(answer)
        while self.bytes > self.max_bytes:
            _, old = self._kept.popitem(last=False)
            self.bytes -= _size(old)


def _size(answer: Answer) -> int:
    """Bytes of an answer and of the objects around it."""
    return len(answer.body) + 2048
