"""Answers requests: from the bytes of a request to those of its answer."""

import asyncio
import hashlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from mmrl.rewards.server import metrics
from mmrl.rewards.server.reward_worker import RewardWorker
from mmrl.rewards.server.samples import build_sample, count_pixels
from mmrl.rewards.server.server_config import PIXEL_BYTES, ServerConfig
from mmrl.rewards.server.wire import Problem, Refusal, ScoreRequest, read_request
from mmrl.types import Sample

logger = logging.getLogger(__name__)

KEPT = 256
"""Answers that are kept for repetitions of their requests."""


class ScoringService:
    """The rewards of a server and the resources that requests share.

    A client that lost an answer repeats its request. The same bytes, which include its id, get the
    same answer, finished or not. Answers with an error are not kept.

    Args:
        config: of the server.
    """

    def __init__(self, config: ServerConfig) -> None:
        self.limits, self.timeout = config.limits, config.timeout_s
        self.held = 0
        metrics.held.set_function(lambda: self.held)
        self.rewards = {e.key: RewardWorker(e, config.limits) for e in config.entries()}
        self._answers: dict[bytes, asyncio.Task[dict[str, Any]]] = {}

    async def run(self) -> None:
        """Load the rewards one after another, because imports are not thread-safe, and serve
        them until cancelled."""
        serving = []
        for reward in self.rewards.values():
            await reward.load()
            serving.append(asyncio.create_task(reward.serve()))
        await asyncio.gather(*serving)

    def health(self) -> dict[str, Any]:
        """The answer of `/v1/health`: `ok` once all rewards are loaded."""
        states = {reward.status for reward in self.rewards.values()}
        limits = {
            key: getattr(self.limits, key) for key in ("max_items", "max_bytes", "max_pixels")
        }
        return {
            "status": next((s for s in ("failed", "loading") if s in states), "ok"),
            "rewards": [reward.health() for reward in self.rewards.values()],
            "limits": limits,
        }

    @contextmanager
    def hold(self, amount: int) -> Iterator[None]:
        """Count bytes that a request holds in the block.

        Raises:
            Refusal: there are not so many, or not at the moment.
        """
        limit = self.limits.memory
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
        """Score a request.

        Raises:
            Refusal: the whole request is refused.
        """
        key = (await asyncio.to_thread(hashlib.sha256, body)).digest()
        if key in self._answers:
            metrics.repeats.inc()
        else:
            self._answers[key] = asyncio.create_task(self._score(body))
            self._answers[key].add_done_callback(partial(self._forget, key))
        return await asyncio.shield(self._answers[key])

    def _forget(self, key: bytes, task: asyncio.Task[dict[str, Any]]) -> None:
        """Forget an answer with an error, or the oldest one."""
        is_final = not task.cancelled() and task.exception() is None
        if not is_final or any(item["error"] for item in task.result()["items"]):
            self._answers.pop(key, None)
        elif len(self._answers) > KEPT:
            self._answers.pop(next(iter(self._answers)))

    async def _score(self, body: bytes) -> dict[str, Any]:
        request = await asyncio.to_thread(read_request, body, self.limits.max_items)
        if request.reward not in self.rewards:
            raise Refusal(404, "unknown_reward", f"Served here: {', '.join(self.rewards)}.")
        reward, most = self.rewards[request.reward], self.limits.max_pixels
        reward.check_ready(len(request.items))  # before images are decoded
        pixels = await asyncio.to_thread(
            lambda: sum(count_pixels(item, most) for item in request.items)
        )
        with self.hold(PIXEL_BYTES * pixels):
            found: list[Any] = await asyncio.to_thread(
                lambda: [build_sample(item, most) for item in request.items]
            )
            found = [reward.check_kind(s) or s if isinstance(s, Sample) else s for s in found]
            places = [n for n, sample in enumerate(found) if isinstance(sample, Sample)]
            scores = await reward.score([found[n] for n in places], self.timeout)
            for n, score in zip(places, scores, strict=True):
                found[n] = score
        items = [_item(i.id, each) for i, each in zip(request.items, found, strict=True)]
        _note(request, items)
        shown = {"id": request.id, "reward": request.reward, "version": reward.entry.version}
        return {**shown, "items": items}


def _item(name: str, outcome: Any) -> dict[str, Any]:
    error = outcome._asdict() if isinstance(outcome, Problem) else None
    return {"id": name, "score": None if error else outcome, "components": {}, "error": error}


def _note(request: ScoreRequest, items: Sequence[Mapping[str, Any]]) -> None:
    """Count outcomes and log the items that failed."""
    for item, found in zip(request.items, items, strict=True):
        scored = "none" if found["score"] is None else "scored"
        code = found["error"]["code"] if found["error"] else scored
        metrics.items.labels(request.reward, code).inc()
        if found["error"]:
            shown = {"id": request.id, "item": item.id, "prompt": item.prompt[:80]}
            shown |= {"code": code, "reason": found["error"]["message"], "reward": request.reward}
            logger.warning("item failed", extra={"fields": shown})
