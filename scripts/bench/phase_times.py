"""Seconds of the phases of a run, by the names of `mmrl.runtime.activity`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

PHASES = {
    "rollouts": "rollout",
    "waiting for rewards": "waiting for rewards",
    "scoring": "scoring",
    "update": "update",
}
"""Beginnings of the names of activities -> phase."""


class PhaseTimes:
    """Times phases; phases inside a phase belong to it.

    Args:
        synchronize: waits for what the device has yet to compute.
        clock: gives seconds.
    """

    def __init__(
        self,
        synchronize: Callable[[], object] = lambda: None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.synchronize, self.clock = synchronize, clock
        self.seconds: dict[str, float] = {}
        self.open: str | None = None

    @contextmanager
    def measure(self, name: str) -> Iterator[None]:
        """Time an activity inside the context, see `mmrl.runtime.activity.watch`."""
        phase = next((phase for start, phase in PHASES.items() if name.startswith(start)), None)
        if phase is None or self.open is not None:
            yield
            return
        self.open, started = phase, self._now()
        try:
            yield
        finally:
            self.open = None
            self.seconds[phase] = self.seconds.get(phase, 0.0) + self._now() - started

    def _now(self) -> float:
        self.synchronize()
        return self.clock()
