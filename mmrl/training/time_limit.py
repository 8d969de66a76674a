"""`max_hours`: a run ends with a checkpoint before its time is over.

It leaves `stopped.json` in the run directory and another exit status than a failure.
"""

import json
import os
import time

from mmrl.run.run_directory import RunDirectory
from mmrl.run_config import OUT_OF_TIME
from mmrl.runtime.activity import current_display


class OutOfTime(KeyboardInterrupt):
    """`max_hours` has ended the run; its last finished step is in a checkpoint.

    Attributes:
        status: exit status of the command. Launchers of several processes take every status but 0
            for a failure of one of them, and end the others, so it is 0 there.
    """

    def __init__(self, hours: float | None, step: int) -> None:
        super().__init__(f"stopped at step {step}: max_hours is {hours}")
        self.status = 0 if "LOCAL_RANK" in os.environ else OUT_OF_TIME


class TimeLimit:
    """The time that a run has, on its main process.

    Args:
        hours: since the command began; None for no limit.
    """

    def __init__(self, hours: float | None) -> None:
        display = current_display()
        self.hours, self.begun = hours, time.monotonic() if display is None else display.begun
        self.before, self.longest = time.monotonic(), 0.0

    def is_over(self, save_s: float) -> bool:
        """Whether another step would not fit, and the checkpoint after it.

        Args:
            save_s: longest time that a checkpoint has taken so far.
        """
        now = time.monotonic()
        self.longest, self.before = max(self.longest, now - self.before), now
        needed = now + self.longest + save_s - self.begun
        return self.hours is not None and needed > self.hours * 3600


def write_stop(run: RunDirectory, step: int | None) -> None:
    """Write that a run was stopped at a step; None removes what an earlier launch has written."""
    path = run.path / "stopped.json"
    if run.is_main and step is None:
        path.unlink(missing_ok=True)
    elif run.is_main:
        about = {"rule": "max_hours", "step": step, "status": OUT_OF_TIME}
        path.write_text(json.dumps(about, indent=1) + "\n")
