"""Rules that end a run before its last step: wall-clock time, the KL, a reward that collapses.

Each leaves a checkpoint, `stopped.json` in the run directory and a separate exit status. Rules
on metrics read the lines of `metrics.jsonl`, so a resumed run goes on as one that was not stopped.
"""

import json
import logging
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from mmrl.run.run_directory import RunDirectory
from mmrl.run_config import OUT_OF_TIME, RunConfig
from mmrl.runtime.activity import current_display

logger = logging.getLogger(__name__)
FILE = "stopped.json"
NO_SPREAD = "frac_reward_zero_std"
STOPPED = 76
"""Exit status of a run that a metric has stopped."""

RULES = {"max_kl": "kl", "max_frac_reward_zero_std": NO_SPREAD, "min_reward_share": "reward"}
"""Setting -> metric of a task that it limits."""


class StoppedByRule(KeyboardInterrupt):
    """A rule has ended the run; its last finished step is in a checkpoint.

    Attributes:
        status: exit status of the command. Launchers of several processes take every status but 0
            for a failure of one of them, and end the others, so it is 0 there.
    """

    def __init__(self, stop: "Stop", step: int) -> None:
        super().__init__(f"stopped at step {step}: {stop}")
        self.status = 0 if "LOCAL_RANK" in os.environ else stop.status


@dataclass(frozen=True)
class Stop:
    """Why a run stops.

    Attributes:
        rule: setting.
        limit: its value.
        key: metric that it is about.
        value: of the metric.
        window: lines of metrics that it is about.
        best: largest mean of so many lines before.
    """

    rule: str
    limit: float
    key: str
    value: float
    window: int = 1
    best: float | None = None

    @property
    def status(self) -> int:
        """Exit status of the command."""
        return OUT_OF_TIME if self.rule == "max_hours" else STOPPED

    def __str__(self) -> str:
        of = f", the mean of the last {self.window} lines of metrics" if self.window > 1 else ""
        best = "" if self.best is None else f" after {self.best:.4g} at best"
        return f"{self.rule}={self.limit:g}: {self.key} is {self.value:.4g}{of}{best}"


class StopRules:
    """The rules of a run, on its main process.

    Args:
        config: of the run.
        lines: metrics of the steps before this launch.
    """

    def __init__(self, config: RunConfig, lines: Sequence[Mapping[str, Any]]) -> None:
        self.config, self.lines = config, [line for line in lines if is_training(line)]
        display = current_display()
        self.begun = time.monotonic() if display is None else display.begun
        self.before, self.longest = time.monotonic(), 0.0
        self.found: Stop | None = None

    def add(self, line: Mapping[str, Any]) -> None:
        """Add a line of metrics, of steps or of an evaluation."""
        if is_training(line):
            self.lines.append(line)
            self.found = next(find_collapse(self.config, self.lines), None)

    def find(self, save_s: float) -> Stop | None:
        """The rule that ends the run after this step, if one does.

        Args:
            save_s: longest time that a checkpoint has taken so far.
        """
        now = time.monotonic()
        self.longest, self.before = max(self.longest, now - self.before), now
        limit = self.config.max_hours
        # another step must fit, and the checkpoint after it
        if limit is not None and now + self.longest + save_s - self.begun > limit * 3600:
            return Stop("max_hours", limit, "hours since the start", (now - self.begun) / 3600)
        return self.found


def find_collapse(config: RunConfig, lines: Sequence[Mapping[str, Any]]) -> Iterator[Stop]:
    """Rules on metrics that end a run with these lines."""
    size = getattr(config, "stop_window", 1)
    for rule, name in RULES.items():
        limit = getattr(config, rule, None)
        if limit is None or len(lines) < size:
            continue
        for key in lines[-1]:
            values = [float(line[key]) for line in lines if line.get(key) is not None]
            if key.rpartition("/")[2] != name or len(values) < size:
                continue
            means = [fmean(values[n : n + size]) for n in range(len(values) - size + 1)]
            now, best = means[-1], max(means)
            share = rule == "min_reward_share"
            if (best > 0 and now < limit * best) if share else now >= limit:
                yield Stop(rule, limit, key, now, size, best if share else None)


def is_training(line: Mapping[str, Any]) -> bool:
    """Whether a line of metrics is of training steps, and not of an evaluation."""
    return "learning_rate" in line


def write_stop(run: RunDirectory, stop: Stop | None, step: int) -> None:
    """Write why a run was stopped, or remove what an earlier launch has written."""
    path = run.path / FILE
    if not run.is_main:
        return
    if stop is None:
        path.unlink(missing_ok=True)
    else:
        about = {"step": step, **asdict(stop), "status": stop.status}
        path.write_text(json.dumps(about, indent=1) + "\n")
