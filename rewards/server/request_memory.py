"""A memory budget for all open requests, and reading their bodies within it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from starlette.requests import ClientDisconnect, Request

from mmrl.rewards.server.refusal import Refusal
from mmrl.rewards.server.server_config import REQUEST_COPIES, Limits

LEAST = 2**20
"""Least bytes counted for a request, which limits the number of small ones."""


class Budget:
    """Bytes that requests may hold; thread-safe.

    Args:
        limit: bytes.
    """

    def __init__(self, limit: int) -> None:
        self.limit, self.held = limit, 0
        self._lock = threading.Lock()

    @contextmanager
    def lease(self) -> Iterator[Lease]:
        """The lease of one request, returned at the end.

        Raises:
            Refusal: nothing is left.
        """
        lease = Lease(self)
        lease.hold(LEAST)
        try:
            yield lease
        finally:
            self.change(-lease.amount)

    def change(self, by: int) -> bool:
        """Take bytes, or return them if negative; False if not enough are left."""
        with self._lock:
            if by > 0 and self.held + by > self.limit:
                return False
            self.held += by
            return True


class Lease:
    """The part of a budget that one request holds."""

    def __init__(self, budget: Budget) -> None:
        self.budget, self.amount = budget, 0

    def hold(self, amount: int) -> None:
        """Change the number of bytes that the request holds.

        Raises:
            Refusal: the request needs more than the limit, or than is free at the moment.
        """
        amount = max(amount, LEAST)
        if amount > self.budget.limit:
            raise Refusal(
                413,
                "too_much_memory",
                f"The request needs {amount:,} bytes of memory, more than"
                f" the {self.budget.limit:,} there are. Send its items in several requests.",
            )
        if not self.budget.change(amount - self.amount):
            raise Refusal(429, "busy", "The memory for requests is in use.", retry_after=1)
        self.amount = amount


async def read_body(request: Request, limits: Limits, lease: Lease) -> bytearray:
    """Read the body of a request.

    Raises:
        Refusal: it is too long or too slow, the client disconnected, or memory is short.
    """
    length = request.headers.get("content-length", "")
    if length.isdecimal():
        _check_length(int(length), limits)
        lease.hold(REQUEST_COPIES * int(length))
    try:
        return await asyncio.wait_for(_collect(request, limits, lease), limits.body_seconds)
    except asyncio.TimeoutError:
        reason = f"The body did not come in {limits.body_seconds:g} seconds."
        raise Refusal(408, "too_slow", reason) from None
    except ClientDisconnect:
        raise Refusal(400, "gone", "The client went away.") from None


async def _collect(request: Request, limits: Limits, lease: Lease) -> bytearray:
    body = bytearray()
    async for chunk in request.stream():
        _check_length(len(body) + len(chunk), limits)
        body += chunk
        if REQUEST_COPIES * len(body) > lease.amount:
            lease.hold(REQUEST_COPIES * min(2 * len(body), limits.max_bytes))
    return body


def _check_length(length: int, limits: Limits) -> None:
    if length > limits.max_bytes:
        raise Refusal(413, "too_many_bytes", f"A body may have {limits.max_bytes:,} bytes.")
