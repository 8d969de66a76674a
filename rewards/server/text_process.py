"""A reward of texts in a separate process, which ends when a sample takes too long.

A thread cannot be interrupted, and a regular expression stops every thread of a process. So texts
are scored aside, and the kernel ends that process when the time is up, whatever it does.
"""

import multiprocessing
import os
import signal
import time
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from threading import Thread
from typing import Any

from mmrl.rewards import REWARDS, Reward, build_reward
from mmrl.rewards.registry.interface import ChecksMetadata
from mmrl.rewards.scoring.scorer import NETWORK_ERRORS, validate
from mmrl.rewards.server.log import start_log
from mmrl.rewards.server.wire import Outcome, Problem
from mmrl.types import Sample

_SPAWN = multiprocessing.get_context("spawn")
_built: list[Reward] = []
"""The reward of this process, if it is one for texts."""


class TextProcess:
    """A reward that scores in a process, which is replaced when it ends.

    Args:
        options: name and options of the reward.
        key: of its entry, for messages.
        seconds: for the texts of a call; if it takes longer, for each of them alone.

    Raises:
        ValueError: the reward cannot be built.
    """

    def __init__(self, options: Mapping[str, Any], key: str, seconds: float) -> None:
        self.key, self.seconds = key, seconds
        self._reward = dict(options), key, dict(REWARDS)
        self._pool = ProcessPoolExecutor(1, _SPAWN)
        problem = self._pool.submit(_build, *self._reward).result()
        if problem:
            raise ValueError(problem)

    def score(self, samples: list[Sample]) -> list[Outcome]:
        """Score samples; one that ends the process fails alone."""
        started = time.monotonic()
        try:
            return self._pool.submit(_score_within, self.seconds, samples, *self._reward).result()
        except BrokenProcessPool:
            took = time.monotonic() - started
            self._pool = ProcessPoolExecutor(1, _SPAWN)
        if len(samples) > 1:
            return [self.score([sample])[0] for sample in samples]
        if took < self.seconds:
            return [Problem("reward_failed", f"{self.key} ended its process on this text.")]
        reason = f"{self.key} took more than {self.seconds:g} seconds (limits.text_seconds)."
        return [Problem("timeout", reason)]


def _build(options: Mapping[str, Any], key: str, known: Mapping[str, str]) -> str:
    """Build the reward of this process, once; why that failed, or nothing."""
    if _built:
        return ""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the server answers what it has accepted
    Thread(target=_end_with_server, daemon=True).start()
    start_log()
    REWARDS.update(known)
    try:
        _built.append(build_reward(options, key))
    except BaseException as error:
        return error_text(error)
    return ""


def _end_with_server() -> None:
    server = multiprocessing.parent_process()
    if server is not None:
        server.join()
        os._exit(0)


def _score_within(seconds: float, samples: list[Sample], *reward: Any) -> list[Outcome]:
    if problem := _build(*reward):
        return [Problem("reward_failed", problem)] * len(samples)
    texts = any(isinstance(sample.completion, str) for sample in samples)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # the kernel ends the process
    signal.setitimer(signal.ITIMER_REAL, seconds if texts else 0)
    try:
        return score_samples(_built[0], samples)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def score_samples(reward: Reward, samples: list[Sample]) -> list[Outcome]:
    """Score a batch; a sample whose metadata is refused, or on which the reward raises, fails."""
    found: list[Outcome] = [_check_metadata(reward, sample) for sample in samples]
    right = [n for n, problem in enumerate(found) if problem is None]
    scores = _score(reward, [samples[n] for n in right]) if right else []
    for n, score in zip(right, scores, strict=True):
        found[n] = score
    return found


def _check_metadata(reward: Reward, sample: Sample) -> Problem | None:
    try:
        if isinstance(reward, ChecksMetadata):
            reward.check(sample.metadata)
    except Exception as error:  # metadata is anything, and a check is the user's code
        return Problem("bad_metadata", error_text(error))
    return None


def _score(reward: Reward, samples: list[Sample]) -> list[Outcome]:
    try:
        scores = validate(reward(samples), samples)
    except NETWORK_ERRORS as error:
        return [Problem("unreachable", error_text(error))] * len(samples)
    except (Exception, SystemExit) as error:  # a reward is the user's code
        if len(samples) > 1:
            return [_score(reward, [sample])[0] for sample in samples]
        return [Problem("reward_failed", error_text(error))]
    return [
        score
        if score is None or isinstance(score, float)
        else Problem("no_score", f"The reward {score}.")
        for score in scores
    ]


def error_text(error: BaseException) -> str:
    """An error as valid Unicode, which file names in it may not be."""
    return f"{type(error).__name__}: {error}"[:300].encode(errors="replace").decode()
