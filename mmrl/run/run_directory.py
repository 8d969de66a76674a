"""The directory of one training run: configuration, environment, log and metrics.

config.yaml     all settings, defaults and columns of presets included; `auto` is written as it is
env.txt         versions, commit, machine, command line, and what `auto` meant there
train.log       everything that was logged
metrics.jsonl   one JSON object per line, always with `step`
samples/        images and tables written along the way
checkpoints/    `<step>/`, see `mmrl.run.checkpoint`
final/          the trained model
"""

import json
import logging
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mmrl.config import ConfigError, to_yaml
from mmrl.run.checkpoint import check_within, checkpoint_steps, find_checkpoint, write_file
from mmrl.run.environment import environment_text
from mmrl.run.metrics_file import read_metrics
from mmrl.run.run_lock import check_writable

logger = logging.getLogger(__name__)


class RunDirectory:
    """Paths and files of a run. Only the main process writes; the others may read the paths."""

    def __init__(self, path: str | Path, is_main: bool = True) -> None:
        self.path, self.is_main = Path(path), is_main
        self.checkpoints = self.path / "checkpoints"
        self.samples = self.path / "samples"
        self.final = self.path / "final"
        self.metrics = self.path / "metrics.jsonl"
        self._settings: dict[str, str] = {}

    def starting_point(self, config: Any) -> Path | None:
        """Find the checkpoint that a run resumes from, None to start at step 0; nothing is changed.
        `auto` is also for the directory of a run that ended before its first checkpoint. Raises
        ConfigError: the directory cannot be written or its run would be lost, or there is no such
        checkpoint or its step is beyond the last one."""
        check_writable("output_dir", self.path)
        checkpoint = find_checkpoint(config.resume_from_checkpoint, self.checkpoints)
        if checkpoint is None or checkpoint.resolve().parent != self.checkpoints.resolve():
            self._check_fresh(restart=config.resume_from_checkpoint == "auto")
        if checkpoint is not None and getattr(config, "num_train_epochs", None) is None:
            check_within(int(checkpoint.name), config.max_steps, checkpoint)
        return checkpoint

    def _check_fresh(self, restart: bool) -> None:
        begun = self.metrics.exists() or any(self.checkpoints.glob("*"))
        finished = self.final.exists()
        if not finished and (restart or not begun):
            return
        kind, larger = ("a finished", " and a larger max_steps") if finished else ("a", "")
        advice = f"Continue it with resume_from_checkpoint=auto{larger}, or choose"
        if finished and not checkpoint_steps(self.checkpoints):
            advice = "It has no checkpoints: choose"
        raise ConfigError(
            f"output_dir is '{self.path}', which already holds {kind} run. {advice} another"
            " output_dir, or remove it."
        )

    def create(self, config: Any, computation: Sequence[str] = ()) -> None:
        """Make the directory, and what `write_settings` writes, with lines on how this machine
        computes."""
        if self.is_main:
            for folder in (self.path, self.samples, self.checkpoints):
                folder.mkdir(parents=True, exist_ok=True)
            environment = environment_text(computation)
            self._settings = {"config.yaml": to_yaml(config), "env.txt": environment}

    def write_settings(self) -> None:
        """Write `config.yaml` and `env.txt`, once nothing refuses the run any more."""
        for name, text in self._settings.items():
            write_file(self.path / name, text)

    def append(self, step: int, values: Mapping[str, float]) -> None:
        """Append one line to `metrics.jsonl`; values that are not finite are stored as null."""
        if not self.is_main:
            return
        line: dict[str, Any] = {"step": step, **values}
        bad = [key for key, value in line.items() if not math.isfinite(value)]
        if bad:
            logger.warning("step %d: not finite and stored as null: %s", step, ", ".join(bad))
            line.update(dict.fromkeys(bad))
        with self.metrics.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def keep_until(self, last: int) -> None:
        """Keep metrics and samples up to a step; drop a last line that a kill has truncated."""
        for path in self.samples.glob("*_*.*") if self.is_main else ():
            step = path.stem.rpartition("_")[2]
            if len(step) > 5 and step.isdecimal() and int(step) > last:
                path.unlink()
        if self.is_main and self.metrics.exists():
            kept = [line for line in self.read_metrics() if line["step"] <= last]
            write_file(self.metrics, "".join(json.dumps(line) + "\n" for line in kept))

    def read_metrics(self) -> list[dict[str, Any]]:
        """Return the lines of `metrics.jsonl`."""
        return read_metrics(self.metrics)
