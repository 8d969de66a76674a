"""One served reward: loaded and called in its own thread, described for clients.

Samples of many requests wait to be scored together. A batch is complete when it is full or when its
oldest sample has waited long enough. While one is being scored, the next one fills. Samples are
scored in the order of their arrival.
"""

import asyncio
import logging
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, NamedTuple

from PIL import Image

from mmrl.rewards import Reward, build_reward
from mmrl.rewards.registry.interface import ChecksMetadata, Described
from mmrl.rewards.scoring.returned import Failure, Result
from mmrl.rewards.scoring.scorer import NETWORK_ERRORS, call_reward
from mmrl.rewards.server.server_config import ServedEntry
from mmrl.rewards.server.wire import Outcome, Problem, Refusal
from mmrl.types import Sample, Video

logger = logging.getLogger(__name__)


class Place(NamedTuple):
    """A sample that waits, when it came, and its outcome; a cancelled one is left out."""

    sample: Sample
    arrived: float
    outcome: asyncio.Future[Outcome]


class Queue:
    """The samples that wait for one reward; the oldest waits `max_latency` seconds for others."""

    def __init__(self, max_batch_size: int, max_latency: float) -> None:
        self.max_batch_size, self.max_latency = max_batch_size, max_latency
        self._places: deque[Place] = deque()
        self._came = asyncio.Event()

    def __len__(self) -> int:
        return len(self._places)

    def put(self, samples: Sequence[Sample]) -> list[asyncio.Future[Outcome]]:
        """Add samples; the outcomes that they will have."""
        loop = asyncio.get_running_loop()
        places = [Place(sample, loop.time(), loop.create_future()) for sample in samples]
        self._places.extend(places)
        self._came.set()
        return [place.outcome for place in places]

    async def next_batch(self) -> list[Place]:
        """The next batch, when it is due; it is empty if nobody waits for its samples any more."""
        while (patience := self._patience()) > 0:
            self._came.clear()
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._came.wait(), min(patience, 3600))
        count = min(self.max_batch_size, len(self._places))
        taken = [self._places.popleft() for _ in range(count)]
        return [place for place in taken if not place.outcome.done()]

    def _patience(self) -> float:
        """Seconds until the next batch is due."""
        if not self._places or len(self._places) >= self.max_batch_size:
            return 0.0 if self._places else math.inf
        return self._places[0].arrived + self.max_latency - asyncio.get_running_loop().time()


class RewardWorker:
    """A reward that scores the samples of its queue, in which `max_waiting` may wait."""

    def __init__(self, entry: ServedEntry, max_waiting: int) -> None:
        self.entry, self.key, self.max_waiting = entry, entry.key, max_waiting
        self.queue = Queue(entry.max_batch_size, entry.max_latency_ms / 1000)
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
        """Score samples; those without a score after `seconds` are a `timeout`. Raises Refusal: too
        many samples wait."""
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
    problems = [_find_problem(reward, sample) for sample in samples]
    right = [each for each, wrong in zip(samples, problems, strict=True) if wrong is None]
    results = iter(call_reward(reward, right, one_by_one=True) if right else ())
    return [_outcome(next(results)) if wrong is None else wrong for wrong in problems]


def _find_problem(reward: Reward, sample: Sample) -> Problem | None:
    kinds = {"completion": str, "images": Image.Image, "video": Video}
    made = next(need for need, kind in kinds.items() if isinstance(sample.completion, kind))
    read = kinds.keys() & (reward.needs if isinstance(reward, Described) else ())
    if read and made not in read:
        shown = {"completion": "a text", "images": "an image", "video": "a video"}[made]
        reason = f"The reward needs {', '.join(reward.needs)}; this completion is {shown}."  # type: ignore[attr-defined]
        return Problem("wrong_input", reason)
    try:
        if isinstance(reward, ChecksMetadata):
            reward.check(sample.metadata)
    except Exception as error:  # metadata is anything, and a check is the user's code
        return Problem("bad_metadata", _error_text(error))
    return None


def _outcome(score: Result) -> Outcome:
    if score is None or isinstance(score, float):
        return score
    if isinstance(score, Failure) and score.error is not None:
        code = "unreachable" if isinstance(score.error, NETWORK_ERRORS) else "reward_failed"
        return Problem(code, _error_text(score.error))
    return Problem("no_score", f"The reward {score}.")


def _error_text(error: BaseException) -> str:
    """An error as valid Unicode, which file names in it may not be."""
    return f"{type(error).__name__}: {error}"[:300].encode(errors="replace").decode()
