"""The directory of one training run: configuration, environment, log and metrics.

config.yaml     the settings, defaults included; what is `auto` stays so
env.txt         versions, commit, machine, command line, and what `auto` meant there
train.log       everything that was logged
metrics.jsonl   one JSON object per line, always with `step`
samples/        images and tables written along the way
checkpoints/    `<step>/`, see `mmrl.run.checkpoint`
final/          the trained model
"""

from __future__ import annotations

import json
import logging
import math
import os
import platform
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from mmrl.config import ConfigError, check, to_yaml
from mmrl.run.checkpoint import checkpoint_steps, find_checkpoint
from mmrl.run.run_lock import locked
from mmrl.runtime.activity import write

logger = logging.getLogger(__name__)
PACKAGES = ("torch", "transformers", "accelerate", "peft", "datasets", "safetensors", "omegaconf")
OWN = ("mmrl", "models", "rewards", "eval", "__main__")
LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class RunDirectory:
    """Paths and files of a run. Only the main process writes; the others may read the paths."""

    def __init__(self, path: str | Path, is_main: bool = True) -> None:
        self.path, self.is_main = Path(path), is_main
        self.checkpoints = self.path / "checkpoints"
        self.samples = self.path / "samples"
        self.final = self.path / "final"
        self.metrics = self.path / "metrics.jsonl"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other runs out meanwhile.

        Raises:
            ConfigError: a directory that cannot be written, or in which another run is writing.
        """
        check_writable("output_dir", self.path)
        with locked("output_dir", self.path, self.is_main):
            yield

    def starting_point(self, resume_from_checkpoint: str | None) -> Path | None:
        """The checkpoint a run goes on from, None for its first step; nothing is changed.

        Args:
            resume_from_checkpoint: see `find_checkpoint`; `auto` also accepts what a run that ended
                before its first checkpoint has left.

        Raises:
            ConfigError: a directory that cannot be written or whose run would be lost, or no such
                checkpoint.
        """
        check_writable("output_dir", self.path)
        checkpoint = find_checkpoint(resume_from_checkpoint, self.checkpoints)
        if checkpoint is None:
            self._check_fresh(restart=resume_from_checkpoint == "auto")
        return checkpoint

    def _check_fresh(self, restart: bool) -> None:
        begun = self.metrics.exists() or any(self.checkpoints.glob("*"))
        if not self.final.exists() and (restart or not begun):
            return
        if not self.final.exists():
            kind, advice = "a run", "Continue it with resume_from_checkpoint=auto, or choose"
        elif checkpoint_steps(self.checkpoints):
            kind = "a finished run"
            advice = (
                "Continue it with resume_from_checkpoint=auto and a larger max_steps, or choose"
            )
        else:
            kind, advice = "a finished run without checkpoints", "Choose"
        raise ConfigError(
            f"output_dir is '{self.path}', which already holds {kind}. {advice} another"
            " output_dir, or remove it."
        )

    def create(self, config: Any, computation: Sequence[str] = ()) -> None:
        """Make the directory and write `config.yaml` and `env.txt`.

        Args:
            config: the settings of the run, a dataclass.
            computation: lines on how this machine computes it, for `env.txt`.
        """
        if not self.is_main:
            return
        for folder in (self.path, self.samples, self.checkpoints):
            folder.mkdir(parents=True, exist_ok=True)
        (self.path / "config.yaml").write_text(to_yaml(config))
        (self.path / "env.txt").write_text(environment_text(computation))

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

    def truncate_metrics(self, step: int) -> None:
        """Drop the lines after `step`, and a last line that a kill cut short."""
        if not self.is_main or not self.metrics.exists():
            return
        kept = [line for line in self.metrics.read_text().splitlines() if _step_of(line) <= step]
        aside = self.metrics.with_suffix(".partial")
        aside.write_text("".join(line + "\n" for line in kept))
        os.replace(aside, self.metrics)

    def read_metrics(self) -> list[dict[str, Any]]:
        """Return the lines of `metrics.jsonl`."""
        if not self.metrics.exists():
            return []
        return [json.loads(line) for line in self.metrics.read_text().splitlines()]


def check_writable(key: str, path: Path) -> None:
    """Raise a ConfigError where a directory neither is there to be written nor can be made."""
    place = next(p for p in (path, *path.absolute().parents) if os.path.exists(p))
    for holds, what in (
        (place.is_dir(), "is a file"),
        (os.access(place, os.W_OK | os.X_OK), "cannot be written"),
    ):
        check(holds, key, str(path), "a directory, existing or new", f"'{place}' {what}.")


class RunLog:
    """Sends log records to `train.log` and, on the main process, to the console, while open.

    The handlers are those of this project's own loggers, which pass nothing on meanwhile: what a
    library does to the root logger neither repeats a line nor loses one. Warnings of libraries come
    by the root logger.
    """

    def __init__(self, run: RunDirectory, rank: int = 0) -> None:
        name = "train.log" if rank == 0 else f"train.rank{rank}.log"
        run.path.mkdir(parents=True, exist_ok=True)
        self.handlers: list[logging.Handler] = [logging.FileHandler(run.path / name)]
        if run.is_main:
            self.handlers.append(_ConsoleHandler())
        for handler in self.handlers:
            handler.setFormatter(logging.Formatter(LOG_FORMAT, datefmt="%Y-%m-%d %H:%M:%S"))
            handler.addFilter(_own_or_warning)
        self.own = [logging.getLogger(name) for name in OWN]

    def __enter__(self) -> RunLog:
        self.before = [(logger.level, logger.propagate) for logger in self.own]
        for logger in self.own:
            logger.setLevel(logging.INFO)
            logger.propagate = False
        for logger in (*self.own, logging.getLogger()):
            for handler in self.handlers:
                logger.addHandler(handler)
        return self

    def __exit__(self, *_: object) -> None:
        for logger, (level, propagate) in zip(self.own, self.before, strict=True):
            logger.setLevel(level)
            logger.propagate = propagate
        for handler in self.handlers:
            for logger in (*self.own, logging.getLogger()):
                logger.removeHandler(handler)
            handler.close()


def _is_own(record: logging.LogRecord) -> bool:
    return record.name.split(".")[0] in OWN


def _own_or_warning(record: logging.LogRecord) -> bool:
    """Whether a record comes from this project, or is a warning of a library."""
    return record.levelno >= logging.WARNING or _is_own(record)


class _ConsoleHandler(logging.Handler):
    """Writes above a bar that moves instead of through it."""

    def emit(self, record: logging.LogRecord) -> None:
        if _is_own(record) or not _others_on_console():
            write(self.format(record))


def _others_on_console() -> bool:
    """Whether a library has put a handler of its own for the console on the root logger."""
    return any(
        getattr(handler, "stream", None) in (sys.stderr, sys.stdout)
        for handler in logging.getLogger().handlers
    )


def environment_text(computation: Sequence[str] = ()) -> str:
    """Return versions, commit, machine, command line and how it computes, one per line."""
    lines = [
        f"command: {' '.join(sys.argv)}",
        f"commit: {git_commit()}",
        f"python: {platform.python_version()} on {platform.platform()}",
        f"cpu threads: {torch.get_num_threads()} of {os.cpu_count()}",
        f"gpu: {', '.join(_gpus()) or 'none'}",
        *computation,
    ]
    lines += [f"{name}: {_version(name)}" for name in PACKAGES]
    return "\n".join(lines) + "\n"


def git_commit() -> str:
    """Return the commit of the code, marked when files differ from it, or `unknown`."""
    root = Path(__file__).resolve().parents[1]
    try:
        commit = _git("rev-parse", "HEAD", root=root)
        return (
            f"{commit} with local changes" if _git("status", "--porcelain", root=root) else commit
        )
    except (OSError, subprocess.SubprocessError):
        return "unknown"


def _git(*words: str, root: Path) -> str:
    done = subprocess.run(
        ["git", "-C", str(root), *words], capture_output=True, text=True, timeout=10, check=True
    )
    return done.stdout.strip()


def _gpus() -> list[str]:
    return [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"


def _step_of(line: str) -> float:
    """The step of a line; one without is none of the run's, and goes like those that come after."""
    try:
        step = json.loads(line)["step"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return math.inf
    return step if isinstance(step, int) else math.inf
