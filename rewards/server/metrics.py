"""Metrics for Prometheus at `/metrics`. No label holds text that a client chose."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)

SECONDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
ITEMS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """The counters of one server, and of its process.

    Args:
        held: bytes that requests hold.
    """

    def __init__(self, held: Callable[[], int]) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self.requests = Counter(
            "reward_server_requests",
            "Answers by path and status.",
            ["path", "status"],
            registry=registry,
        )
        self.request_seconds = Histogram(
            "reward_server_request_seconds",
            "From the head of a request to its answer.",
            ["path"],
            buckets=SECONDS,
            registry=registry,
        )
        self.items = Counter(
            "reward_server_items",
            "Items by reward and outcome: scored, none, or an error's code.",
            ["reward", "outcome"],
            registry=registry,
        )
        self.repeats = Counter(
            "reward_server_repeats",
            "Requests answered as a second sending of another.",
            registry=registry,
        )
        self.batch_items = Histogram(
            "reward_server_batch_items",
            "Items scored in one call.",
            ["reward"],
            buckets=ITEMS,
            registry=registry,
        )
        self.batch_seconds = Histogram(
            "reward_server_batch_seconds",
            "Time of one call.",
            ["reward"],
            buckets=SECONDS,
            registry=registry,
        )
        self.ready = Gauge(
            "reward_server_ready", "1 once the reward is loaded.", ["reward"], registry=registry
        )
        self.waiting = Gauge(
            "reward_server_waiting_items",
            "Items waiting for a batch.",
            ["reward"],
            registry=registry,
        )
        self.held = Gauge(
            "reward_server_held_bytes", "Memory counted for requests in work.", registry=registry
        )
        self.held.set_function(held)

    def watch(self, reward: str, ready: Callable[[], bool], waiting: Callable[[], int]) -> None:
        """Read the state of a reward whenever the metrics are asked for."""
        self.ready.labels(reward).set_function(lambda: float(ready()))
        self.waiting.labels(reward).set_function(waiting)

    @contextmanager
    def batch(self, reward: str, size: int) -> Iterator[None]:
        """Count and time one call of a reward."""
        self.batch_items.labels(reward).observe(size)
        started = time.perf_counter()
        yield
        self.batch_seconds.labels(reward).observe(time.perf_counter() - started)

    def count_answer(self, path: str, status: int, seconds: float) -> None:
        """Count one answer."""
        self.requests.labels(path, str(status)).inc()
        self.request_seconds.labels(path).observe(seconds)

    def text(self) -> bytes:
        """All of it in Prometheus' format."""
        return generate_latest(self.registry)
