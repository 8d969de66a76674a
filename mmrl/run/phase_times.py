"""Seconds of the phases of a run, by the names of `mmrl.runtime.activity`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PHASES = {
    "rollouts": "rollout",
    "waiting for rewards": "waiting for rewards",
    "scoring": "scoring",
    "update": "update",
    "evaluating": "evaluation",
    "drawing the first images": "evaluation",
    "writing the report": "report",
    "writing the trace": "trace",
    "writing": "checkpoint",
}
"""Beginnings of the names of activities -> phase."""
OTHER = "other"
"""What no phase covers: metrics, prompts, masks, advantages."""


def find_phase(name: str) -> str | None:
    """The phase of an activity, None for one that is none."""
    return next((phase for start, phase in PHASES.items() if name.startswith(start)), None)


@dataclass
class Spent:
    """Calls of a phase, their seconds, and those of the first."""

    calls: int = 0
    seconds: float = 0.0
    first: float = 0.0

    def add(self, seconds: float) -> None:
        """Count a call."""
        self.first = self.first if self.calls else seconds
        self.calls += 1
        self.seconds += seconds


class PhaseTimes:
    """Counts and times phases; phases inside a phase belong to it.

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
        self.phases: dict[str, Spent] = {}
        self.open: str | None = None
        self.started = clock()

    @contextmanager
    def measure(self, name: str) -> Iterator[None]:
        """Time an activity inside the context, see `mmrl.runtime.activity.watch`."""
        phase = find_phase(name)
        if phase is None or self.open is not None:
            yield
            return
        self.open, started = phase, self._now()
        try:
            yield
        finally:
            self.open = None
            self.phases.setdefault(phase, Spent()).add(self._now() - started)

    def table(self) -> list[dict[str, Any]]:
        """A row for each phase, and one for the rest."""
        total = self._now() - self.started
        rest = total - sum(spent.seconds for spent in self.phases.values())
        rows = [
            {
                "phase": phase,
                "seconds": round(spent.seconds, 4),
                "share": round(spent.seconds / total, 4),
                "calls": spent.calls,
                "mean_s": round(spent.seconds / spent.calls, 4),
                "first_s": round(spent.first, 4),
            }
            for phase, spent in self.phases.items()
        ]
        return [*rows, {"phase": OTHER, "seconds": round(rest, 4), "share": round(rest / total, 4)}]

    def write(self, folder: Path) -> None:
        """Write the table to `phases.json` and `phases.txt`."""
        rows = self.table()
        (folder / "phases.json").write_text(json.dumps(rows, indent=1) + "\n")
        (folder / "phases.txt").write_text(format_table(rows))

    def _now(self) -> float:
        self.synchronize()
        return self.clock()


def format_table(rows: list[dict[str, Any]]) -> str:
    """The rows as aligned text."""
    names = ["phase", "seconds", "share", "calls", "mean_s", "first_s"]
    lines = [names, *([str(row.get(name, "")) for name in names] for row in rows)]
    widths = [max(len(line[n]) for line in lines) for n in range(len(names))]
    return "".join(
        "  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]).rstrip() + "\n"
        for line in lines
    )
