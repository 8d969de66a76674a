"""A request that comes twice is scored once.

A client that lost the answer sends its request again; the same bytes (its id is among them) get the
same answer, whether it is still being made or is done. Answers with an error are not kept, so that
another try is one.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Answer:
    """What a request is answered with.

    Attributes:
        body: JSON.
        fields: of the request's line in the log.
        is_final: whether a repetition would be answered alike.
    """

    body: bytes
    fields: dict[str, Any]
    is_final: bool


class Repeats:
    """Answers by the digest of their request, the latest ones.

    Args:
        max_bytes: memory of the answers that are kept.
    """

    def __init__(self, max_bytes: int = 2**25) -> None:
        self.max_bytes, self.bytes = max_bytes, 0
        self._running: dict[bytes, asyncio.Task[Answer]] = {}
        self._kept: OrderedDict[bytes, Answer] = OrderedDict()

    def knows(self, key: bytes) -> bool:
        """Whether `answer` would not begin the work."""
        return key in self._kept or key in self._running

    async def answer(self, key: bytes, work: Callable[[], Awaitable[Answer]]) -> Answer:
        """The answer to a request; `work` makes it unless that is done or under way.

        Raises:
            Refusal: what `work` raises, to all who wait for it.
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
