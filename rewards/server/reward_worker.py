"""One served reward: loaded and called in its own thread, described for clients."""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from mmrl.rewards import PartialFailure, Reward, build_reward
from mmrl.rewards.registry.interface import ChecksMetadata, Described
from mmrl.rewards.scoring.returned import Failure, Result, validate
from mmrl.rewards.scoring.scorer import NETWORK_ERRORS
from mmrl.rewards.server.batching import Queue
from mmrl.rewards.server.server_config import ServedEntry
from mmrl.rewards.server.wire import Outcome, Problem, Refusal
from mmrl.types import Sample

logger = logging.getLogger(__name__)


class RewardWorker:
    """A reward that scores the samples of its queue.

    Args:
        entry: the reward and how it is served.
        max_waiting: samples that may wait.
    """

    def __init__(self, entry: ServedEntry, max_waiting: int) -> None:
        self.entry, self.key, self.max_waiting = entry, entry.key, max_waiting
        size, latency = entry.serving.max_batch_size, entry.serving.max_latency_ms / 1000
        self.queue = Queue(size, latency)
        self.status, self.error = "loading", ""
        self._thread = ThreadPoolExecutor(1, entry.key)
        self.running: Future[Any] | None = None  # what the thread does

    def health(self) -> dict[str, Any]:
        """The description that clients get."""
        state = {"status": self.status, "error": self.error or None, "waiting": len(self.queue)}
        return {"name": self.key, "version": self.entry.version, **state}

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

    async def load(self) -> Reward | None:
        """Load the reward; `health` names an error."""
        started = time.monotonic()
        try:
            reward = await self._in_thread(build_reward, self.entry.options, self.key)
        except (Exception, SystemExit) as error:  # a reward is the user's code
            self.status, self.error = "failed", _error_text(error)
            logger.exception("reward %s not loaded", self.key)
            return None
        self.status = "ok"
        seconds = time.monotonic() - started
        logger.info("reward %s loaded in %.1f s: %s", self.key, seconds, self.entry.version)
        return reward

    async def serve(self, reward: Reward) -> None:
        """Score the samples of the queue, for ever."""
        while True:
            batch = await self.queue.next_batch()
            if not batch:
                continue
            found = await self._in_thread(score_samples, reward, [p.sample for p in batch])
            for place, outcome in zip(batch, found, strict=True):
                if not place.outcome.done():
                    place.outcome.set_result(outcome)

    async def _in_thread(self, work: Callable[..., Any], *arguments: Any) -> Any:
        self.running = self._thread.submit(work, *arguments)
        return await asyncio.wrap_future(self.running)


def score_samples(reward: Reward, samples: list[Sample]) -> list[Outcome]:
    """Score a batch; a sample of another kind than the reward reads, whose metadata is refused, or
    on which the reward raises, fails."""
    found: list[Outcome] = [_find_problem(reward, sample) for sample in samples]
    right = [n for n, problem in enumerate(found) if problem is None]
    scores = _score(reward, [samples[n] for n in right]) if right else []
    for n, score in zip(right, scores, strict=True):
        found[n] = score
    return found


def _find_problem(reward: Reward, sample: Sample) -> Problem | None:
    is_text = isinstance(sample.completion, str)
    if isinstance(reward, Described) and ("images" if is_text else "completion") in reward.needs:
        kind = "a text" if is_text else "an image"
        reason = f"The reward needs {', '.join(reward.needs)}; this completion is {kind}."
        return Problem("wrong_input", reason)
    try:
        if isinstance(reward, ChecksMetadata):
            reward.check(sample.metadata)
    except Exception as error:  # metadata is anything, and a check is the user's code
        return Problem("bad_metadata", _error_text(error))
    return None


def _score(reward: Reward, samples: list[Sample]) -> list[Outcome]:
    try:
        scores = validate(reward(samples), samples)
    except PartialFailure as failure:
        scores = validate(failure.results, samples)
    except NETWORK_ERRORS as error:
        return [Problem("unreachable", _error_text(error))] * len(samples)
    except (Exception, SystemExit) as error:  # a reward is the user's code
        if len(samples) > 1:
            return [_score(reward, [sample])[0] for sample in samples]
        return [Problem("reward_failed", _error_text(error))]
    return [_outcome(score) for score in scores]


def _outcome(score: Result) -> Outcome:
    if score is None or isinstance(score, float):
        return score
    if isinstance(score, Failure) and score.error is not None:
        return Problem("reward_failed", _error_text(score.error))
    return Problem("no_score", f"The reward {score}.")


def _error_text(error: BaseException) -> str:
    """An error as valid Unicode, which file names in it may not be."""
    return f"{type(error).__name__}: {error}"[:300].encode(errors="replace").decode()
