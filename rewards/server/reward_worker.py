"""One served reward: loaded and called in its own thread, described for clients."""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

from mmrl.rewards import build_reward, reward_class
from mmrl.rewards.networks.placement import resolve_device
from mmrl.rewards.registry.interface import Described
from mmrl.rewards.server import metrics
from mmrl.rewards.server.batching import Queue
from mmrl.rewards.server.server_config import Limits, ServedEntry
from mmrl.rewards.server.text_process import TextProcess, error_text, score_samples
from mmrl.rewards.server.wire import Outcome, Problem, Refusal
from mmrl.types import Sample

logger = logging.getLogger(__name__)


class RewardWorker:
    """A reward that scores the samples of its queue.

    Args:
        entry: the reward and how it is served.
        limits: of the server.
    """

    def __init__(self, entry: ServedEntry, limits: Limits) -> None:
        self.entry, self.key, self.text_seconds = entry, entry.key, limits.text_seconds
        size, latency = entry.serving.max_batch_size, entry.serving.max_latency_ms / 1000
        self.queue, self.max_waiting = Queue(size, latency), limits.max_waiting
        self.status, self.error = "loading", ""
        self.device = str(entry.options.get("device", "cpu"))
        described = reward_class(entry.options["name"])
        self.needs = described.needs if isinstance(described, Described) else ()
        self.scale = described.scale if isinstance(described, Described) else "not described"
        self._thread = ThreadPoolExecutor(1, entry.key)
        self.running: Future[Any] | None = None  # what the thread does
        self._score: Callable[[list[Sample]], list[Outcome]] = lambda samples: []
        metrics.ready.labels(self.key).set_function(lambda: float(self.status == "ok"))
        metrics.waiting.labels(self.key).set_function(lambda: len(self.queue))

    def health(self) -> dict[str, Any]:
        """The description that clients get."""
        shown = {"name": self.key, "version": self.entry.version, "device": self.device}
        shown |= {"scale": self.scale, "needs": list(self.needs)}
        return {**shown, "status": self.status, "error": self.error or None}

    def check_kind(self, sample: Sample) -> Problem | None:
        """Why a sample is not of the kind that the reward reads."""
        is_text = isinstance(sample.completion, str)
        if ("images" if is_text else "completion") not in self.needs:
            return None
        kind = "a text" if is_text else "an image"
        reason = f"{self.key} needs {', '.join(self.needs)}; this completion is {kind}."
        return Problem("wrong_input", reason)

    def check_ready(self, count: int) -> None:
        """Raise a `Refusal` unless the reward is loaded and so many more samples may wait."""
        if self.status == "loading":
            raise Refusal(503, "loading", f"{self.key} is being loaded.", retry_after=2)
        if self.status == "failed":
            raise Refusal(503, "failed", f"{self.key} could not be loaded; see /v1/health.")
        if len(self.queue) + count > self.max_waiting:
            reason = f"{len(self.queue)} items wait for {self.key}."
            raise Refusal(429, "busy", reason, retry_after=1)

    async def score(self, samples: Sequence[Sample], seconds: float) -> list[Outcome]:
        """Score samples; those without a score after `seconds` are a `timeout`.

        Raises:
            Refusal: too many samples wait.
        """
        self.check_ready(len(samples))
        waiting = self.queue.put(samples)
        if waiting:
            await asyncio.wait(waiting, timeout=seconds)
        late = Problem("timeout", f"No score after {seconds:g} seconds.")
        return [late if outcome.cancel() else outcome.result() for outcome in waiting]

    async def load(self) -> None:
        """Load the reward; `health` names an error."""
        started, fields = time.monotonic(), {"reward": self.key, "version": self.entry.version}
        try:
            self._score = await self._in_thread(self._build)
        except (Exception, SystemExit) as error:  # a reward is the user's code
            self.status, self.error = "failed", error_text(error)
            return logger.exception("reward not loaded", extra={"fields": fields})
        self.status = "ok"
        seconds = round(time.monotonic() - started, 3)
        logger.info("reward loaded", extra={"fields": {**fields, "seconds": seconds}})

    async def serve(self) -> None:
        """Score the samples of the queue, for ever."""
        while True:
            batch = await self.queue.next_batch()
            if not batch:
                continue
            metrics.batch_items.labels(self.key).observe(len(batch))
            with metrics.batch_seconds.labels(self.key).time():
                try:
                    found = await self._in_thread(self._score, [place.sample for place in batch])
                except Exception as error:
                    logger.exception("batch not scored", extra={"fields": {"reward": self.key}})
                    found = [Problem("reward_failed", error_text(error))] * len(batch)
            for place, outcome in zip(batch, found, strict=True):
                if not place.outcome.done():
                    place.outcome.set_result(outcome)

    async def _in_thread(self, work: Callable[..., Any], *arguments: Any) -> Any:
        self.running = self._thread.submit(work, *arguments)
        return await asyncio.wrap_future(self.running)

    def _build(self) -> Callable[[list[Sample]], list[Outcome]]:
        """Build the reward: of texts in a process, unless it ends what it waits for by itself."""
        options = dict(self.entry.options)
        if "device" in options:
            options["device"] = self.device = str(resolve_device(self.device))
        found = reward_class(options["name"])
        if "images" not in self.needs and not getattr(found, "limits_itself", False):
            return TextProcess(options, self.key, self.text_seconds).score
        reward = build_reward(options, self.key)
        if isinstance(reward, Described):  # an option may change what it reads
            self.needs = reward.needs
        return partial(score_samples, reward)
