"""Answers requests: from the bytes of a request to the content of its answer."""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mmrl.rewards.server.files import count_pixels, decode_sample, open_sample
from mmrl.rewards.server.reward_worker import RewardWorker
from mmrl.rewards.server.server_config import PIXEL_BYTES, ServerConfig
from mmrl.rewards.server.wire import Item, Outcome, Problem, Refusal, read_request
from mmrl.types import Sample

logger = logging.getLogger(__name__)


class ScoringService:
    """The rewards of a server and the memory that requests share."""

    def __init__(self, config: ServerConfig) -> None:
        self.limits, self.timeout, self.held = config.limits, config.timeout_s, 0
        most = config.limits.max_waiting
        self.rewards = {entry.key: RewardWorker(entry, most) for entry in config.entries()}

    async def run(self) -> None:
        """Load the rewards one after another, because imports are not thread-safe, and serve
        them until cancelled."""
        serving = []
        for worker in self.rewards.values():
            if reward := await worker.load():
                serving.append(asyncio.create_task(worker.serve(reward)))
        await asyncio.gather(*serving)

    def health(self) -> dict[str, Any]:
        """The answer of `/v1/health`: `ok` once all rewards are loaded."""
        states = {reward.status for reward in self.rewards.values()}
        return {
            "status": next((s for s in ("failed", "loading") if s in states), "ok"),
            "rewards": [reward.health() for reward in self.rewards.values()],
            "held_bytes": self.held,
        }

    @contextmanager
    def hold(self, amount: int) -> Iterator[None]:
        """Count bytes that a request holds in the block. Raises Refusal: there are not so many, or
        not at the moment."""
        limit = self.limits.max_memory_mb * 2**20
        if amount > limit:
            reason = f"The request needs {amount:,} bytes of memory, and there are {limit:,}."
            raise Refusal(413, "too_much_memory", f"{reason} Send its items in several requests.")
        if self.held + amount > limit:
            raise Refusal(429, "busy", "The memory for requests is in use.", retry_after=1)
        self.held += amount
        try:
            yield
        finally:
            self.held -= amount

    async def answer(self, body: bytes) -> dict[str, Any]:
        """Score a request. Raises Refusal: the whole request is refused."""
        request = await asyncio.to_thread(read_request, body, self.limits.max_items)
        if request.reward not in self.rewards:
            raise Refusal(404, "unknown_reward", f"Served here: {', '.join(self.rewards)}.")
        worker = self.rewards[request.reward]
        worker.check_ready(len(request.items))  # before images are decoded
        found = await self._outcomes(worker, request.items)
        items = []
        for item, outcome in zip(request.items, found, strict=True):
            error = outcome._asdict() if isinstance(outcome, Problem) else None
            score = None if error else outcome
            items.append({"id": item.id, "score": score, "components": {}, "error": error})
            if error:
                said = "item failed: %s of request %s, %s, prompt %r: %s (%s)"
                which = item.id, request.id, request.reward, item.prompt[:80]
                logger.warning(said, *which, error["message"], error["code"])
        shown = {"id": request.id, "reward": request.reward, "version": worker.entry.version}
        return {**shown, "items": items}

    async def _outcomes(self, worker: RewardWorker, items: list[Item]) -> list[Outcome]:
        limits = self.limits
        opened = await asyncio.to_thread(lambda: [open_sample(item, limits) for item in items])
        pixels = sum(count_pixels(sample) for sample in opened if isinstance(sample, Sample))
        with self.hold(PIXEL_BYTES * pixels):
            found: list[Any] = await asyncio.to_thread(lambda: [*map(decode_sample, opened)])
            samples = [each for each in found if isinstance(each, Sample)]
            scores = iter(await worker.score(samples, self.timeout))
        return [next(scores) if isinstance(each, Sample) else each for each in found]
