"""Metrics for Prometheus at `/metrics`. No label contains text of a client."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.process_collector import ProcessCollector

T = TypeVar("T", bound=MetricWrapperBase)

SECONDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
ITEMS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """The counters of one server, and of its process.

    Args:
        held: bytes that requests hold.
    """

    def __init__(self, held: Callable[[], int]) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        build = self._build
        self.requests = build(Counter, "requests", "Answers by path and status.", "path", "status")
        about = "From the head of a request to its answer."
        self.request_seconds = build(Histogram, "request_seconds", about, "path", buckets=SECONDS)
        about = "Items by reward and outcome: scored, none, or an error's code."
        self.items = build(Counter, "items", about, "reward", "outcome")
        self.repeats = build(Counter, "repeats", "Requests that repeat another and get its answer.")
        about = "Items scored in one call."
        self.batch_items = build(Histogram, "batch_items", about, "reward", buckets=ITEMS)
        about = "Time of one call."
        self.batch_seconds = build(Histogram, "batch_seconds", about, "reward", buckets=SECONDS)
        self.ready = build(Gauge, "ready", "1 once the reward is loaded.", "reward")
        self.waiting = build(Gauge, "waiting_items", "Items waiting for a batch.", "reward")
        build(Gauge, "held_bytes", "Memory counted for open requests.").set_function(held)

    def _build(self, kind: type[T], name: str, about: str, *labels: str, **options: Any) -> T:
        return kind(f"reward_server_{name}", about, labels, registry=self.registry, **options)

    def watch(self, reward: str, ready: Callable[[], bool], waiting: Callable[[], int]) -> None:
        """Read the state of a reward whenever metrics are requested."""
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
        """All metrics in Prometheus' format."""
        return generate_latest(self.registry)
