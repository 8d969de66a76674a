"""Answers requests: from the bytes of a request to those of its answer."""

import asyncio
import hashlib
import logging
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from mmrl.rewards.server.batching import Outcome
from mmrl.rewards.server.metrics import Metrics
from mmrl.rewards.server.refusal import Refusal
from mmrl.rewards.server.repeats import Answer, Repeats
from mmrl.rewards.server.request_memory import Budget, Lease
from mmrl.rewards.server.reward_worker import RewardWorker
from mmrl.rewards.server.samples import build_samples
from mmrl.rewards.server.server_config import ServerConfig
from mmrl.rewards.server.wire import (
    Health,
    ItemScore,
    LimitsHealth,
    Problem,
    ScoreRequest,
    ScoreResponse,
    read_request,
)
from mmrl.types import Sample

logger = logging.getLogger(__name__)
T = TypeVar("T")


class ScoringService:
    """The rewards of a server and the resources that requests share.

    Args:
        config: of the server.
    """

    def __init__(self, config: ServerConfig) -> None:
        self.limits, self.timeout = config.limits, config.timeout_s
        self.budget = Budget(config.limits.memory)
        self.metrics = Metrics(lambda: self.budget.held)
        self.rewards = {
            entry.key: RewardWorker(entry, config.limits, self.metrics)
            for entry in config.entries()
        }
        self.repeats = Repeats()
        # reading and decoding mostly release the interpreter lock
        self._readers = ThreadPoolExecutor(min(4, os.cpu_count() or 1), "reader")

    def start(self) -> None:
        """Start loading the rewards."""
        for served in self.rewards.values():
            served.thread.start()

    def stop(self) -> None:
        """Finish the waiting samples of every reward, then end its thread."""
        for served in self.rewards.values():
            served.queue.close()
        for served in self.rewards.values():
            served.thread.join(timeout=1.0)
        self._readers.shutdown(wait=False)

    def health(self) -> Health:
        """The answer of `/v1/health`."""
        rewards = [served.health() for served in self.rewards.values()]
        states = {reward.status for reward in rewards}
        limits = {key: getattr(self.limits, key) for key in LimitsHealth.model_fields}
        return Health(
            status="failed" if "failed" in states else "loading" if "loading" in states else "ok",
            rewards=rewards,
            limits=LimitsHealth(**limits),
        )

    async def answer(self, body: bytearray, lease: Lease, fields: dict[str, Any]) -> Answer:
        """Score a request.

        Args:
            body: emptied once it is read.
            lease: what the request holds.
            fields: of its log line; fields are added as they become known.

        Raises:
            Refusal: the whole request is refused.
        """
        fields["bytes"] = len(body)
        key = await self._aside(lambda: hashlib.sha256(body).digest())
        if self.repeats.knows(key):
            fields["repeated"] = True
            self.metrics.repeats.inc()
        answer = await self.repeats.answer(key, lambda: self._score(body, lease, fields))
        fields |= answer.fields
        return answer

    async def _score(self, body: bytearray, lease: Lease, fields: dict[str, Any]) -> Answer:
        size = len(body)
        request = await self._aside(lambda: read_request(body, self.limits.max_items))
        body.clear()
        fields |= {"id": request.id, "items": len(request.items)}
        served = self._find(request.reward)
        fields["reward"] = request.reward
        samples = await self._aside(lambda: self._admit(request, served, size, lease))
        right = [sample for sample in samples if isinstance(sample, Sample)]
        scores = iter(await served.score(right, self.timeout))
        found = [next(scores) if isinstance(sample, Sample) else sample for sample in samples]
        self._note(request, found, fields)
        response = ScoreResponse(
            id=request.id,
            reward=request.reward,
            version=served.entry.version,
            items=[_item(item.id, each) for item, each in zip(request.items, found, strict=True)],
        )
        failed = any(isinstance(each, Problem) for each in found)
        shown = {key: fields[key] for key in ("id", "reward", "items", "failed")}
        return Answer(response.model_dump_json().encode(), shown, is_final=not failed)

    def _find(self, name: str) -> RewardWorker:
        if name not in self.rewards:
            raise Refusal(404, "unknown_reward", f"Served here: {', '.join(self.rewards)}.")
        self.rewards[name].check_ready()
        return self.rewards[name]

    def _admit(
        self, request: ScoreRequest, served: RewardWorker, size: int, lease: Lease
    ) -> list[Sample | Problem]:
        samples = build_samples(request.items, size, self.limits, lease)
        return [s if isinstance(s, Problem) else served.admit(s) or s for s in samples]

    def _note(
        self, request: ScoreRequest, found: Sequence[Outcome], fields: dict[str, Any]
    ) -> None:
        """Count outcomes and log the items that failed."""
        for item, outcome in zip(request.items, found, strict=True):
            code = outcome.code if isinstance(outcome, Problem) else "scored"
            self.metrics.items.labels(request.reward, "none" if outcome is None else code).inc()
            if isinstance(outcome, Problem):
                shown = {"id": request.id, "item": item.id, "prompt": item.prompt[:80]}
                shown |= {"reward": request.reward, **outcome.model_dump()}
                shown["reason"] = shown.pop("message")
                logger.warning("item failed", extra={"fields": shown})
        fields["failed"] = sum(isinstance(outcome, Problem) for outcome in found)

    async def _aside(self, work: Callable[[], T]) -> T:
        """Run `work` in a thread, so that the event loop stays free."""
        return await asyncio.get_running_loop().run_in_executor(self._readers, work)


def _item(name: str, outcome: Outcome) -> ItemScore:
    if isinstance(outcome, Problem):
        return ItemScore(id=name, error=outcome)
    return ItemScore(id=name, score=outcome)
