"""One served reward: loaded and called in its own thread, described for clients."""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from mmrl.rewards import build_reward, reward_class
from mmrl.rewards.networks.placement import resolve_device
from mmrl.rewards.registry.interface import Described
from mmrl.rewards.server.batching import Full, Outcome, Queue
from mmrl.rewards.server.metrics import Metrics
from mmrl.rewards.server.refusal import Refusal
from mmrl.rewards.server.server_config import Limits, ServedEntry
from mmrl.rewards.server.text_process import TextProcess, error_text, score_samples
from mmrl.rewards.server.wire import Problem, RewardHealth, Status
from mmrl.types import Sample

logger = logging.getLogger(__name__)

_LOADING = threading.Lock()
"""Rewards load one after another, because their imports are not thread-safe."""


class RewardWorker:
    """A reward that loads when its thread starts and then scores the samples of its queue.

    Args:
        entry: the reward and how it is served.
        limits: of the server.
        metrics: of the server.
    """

    def __init__(self, entry: ServedEntry, limits: Limits, metrics: Metrics) -> None:
        self.entry, self.metrics, self.text_seconds = entry, metrics, limits.text_seconds
        size, latency = entry.serving.max_batch_size, entry.serving.max_latency_ms / 1000
        self.queue = Queue(size, latency, limits.max_waiting)
        self.status: Status = "loading"
        self.error: str | None = None
        self.device = str(entry.options.get("device", "cpu"))
        described = reward_class(entry.options["name"])
        self.needs = described.needs if isinstance(described, Described) else ()
        self.scale = described.scale if isinstance(described, Described) else "not described"
        # a daemon, because neither loading nor a call of a reward can be interrupted
        self.thread = threading.Thread(target=self._work, name=entry.key, daemon=True)
        metrics.watch(entry.key, lambda: self.status == "ok", lambda: len(self.queue))

    def health(self) -> RewardHealth:
        """The description that clients get."""
        return RewardHealth(
            name=self.entry.key,
            version=self.entry.version,
            device=self.device,
            scale=self.scale,
            needs=list(self.needs),
            status=self.status,
            error=self.error,
        )

    def admit(self, sample: Sample) -> Problem | None:
        """Why a sample cannot be scored, as far as that is known before scoring."""
        is_text = isinstance(sample.completion, str)
        missing = "images" if is_text else "completion"
        if missing in self.needs:
            kind = "a text" if is_text else "an image"
            reason = f"{self.entry.key} needs {', '.join(self.needs)}; this completion is {kind}."
            return Problem(code="wrong_input", message=reason)
        return None

    async def score(self, samples: Sequence[Sample], seconds: float) -> list[Outcome]:
        """Score samples; those without a score after `seconds` are a `timeout`.

        Raises:
            Refusal: the reward is not loaded, or too many samples wait.
        """
        self.check_ready()
        try:
            ticket = self.queue.put(samples)
        except Full:
            reason = f"{len(self.queue)} items wait for {self.entry.key}."
            raise Refusal(429, "busy", reason, retry_after=1) from None
        try:
            await asyncio.wait([asyncio.wrap_future(ticket.done)], timeout=seconds)
        finally:
            ticket.dropped = True
        late = Problem(code="timeout", message=f"No score after {seconds:g} seconds.")
        return [ticket.outcomes.get(n, late) for n in range(len(samples))]

    def check_ready(self) -> None:
        """Raise a `Refusal` unless the reward is loaded."""
        if self.status == "loading":
            reason = f"{self.entry.key} is being loaded."
            raise Refusal(503, "loading", reason, retry_after=2)
        if self.status == "failed":
            raise Refusal(503, "failed", f"{self.entry.key} could not be loaded; see /v1/health.")

    def _options(self) -> dict[str, Any]:
        """The options of the reward with its device resolved."""
        if "device" not in self.entry.options:
            return self.entry.options
        self.device = str(resolve_device(self.device))
        return {**self.entry.options, "device": self.device}

    def _work(self) -> None:
        try:
            started = time.monotonic()
            with _LOADING:
                score = self._build()
        except BaseException as error:  # otherwise the reward would be `loading` for ever
            self.status, self.error = "failed", error_text(error)
            logger.exception("reward not loaded", extra={"fields": {"reward": self.entry.key}})
            return
        self.status = "ok"
        seconds = round(time.monotonic() - started, 3)
        fields = {"reward": self.entry.key, "version": self.entry.version, "seconds": seconds}
        logger.info("reward loaded", extra={"fields": fields})
        for batch in self.queue.batches():
            with self.metrics.batch(self.entry.key, len(batch)):
                found = score([ticket.samples[n] for ticket, n in batch])
            for (ticket, n), outcome in zip(batch, found, strict=True):
                ticket.settle(n, outcome)

    def _build(self) -> Callable[[list[Sample]], list[Outcome]]:
        """Build the reward: of texts in a process, unless it ends what it waits for by itself."""
        found = reward_class(self.entry.options["name"])
        if "images" not in self.needs and not getattr(found, "limits_itself", False):
            return TextProcess(self._options(), self.entry.key, self.text_seconds).score
        reward = build_reward(self._options(), self.entry.key)
        if isinstance(reward, Described):  # an option may change what it reads
            self.needs = reward.needs
        return partial(score_samples, reward)
