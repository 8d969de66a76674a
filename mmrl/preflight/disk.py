"""Disk that a run needs: its checkpoints, what it downloads, and the codes of its images."""

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from huggingface_hub import constants

from mmrl.config import ConfigError
from mmrl.preflight.plan_page import Plan
from mmrl.pretrained.known import find_here
from mmrl.run_config import RunConfig

VQ_BYTES = 0.5e9
"""About the size of showlab/magvitv2."""
CODE_BYTES = 4
"""Of a code of an image in the cache."""


class Disk:
    """What is written into `output_dir` and what is downloaded, and the room that is there.

    Args:
        output_dir: of the run; the checkpoints that are there are counted as free.
        written: bytes by what is written there.
        downloads: bytes of what is loaded from the hub, by its id, unless it is here.
    """

    def __init__(
        self, output_dir: str, written: Mapping[str, float], downloads: Mapping[str, float]
    ) -> None:
        self.written, self.output_dir = dict(written), output_dir
        self.downloads = {n: b for n, b in downloads.items() if find_here("model.path", n) is None}
        place = Path(output_dir).expanduser().absolute()
        held = (place / "checkpoints").rglob("*")
        self.room, self.here = _room(place)
        self.room += sum(file.stat().st_size for file in held if file.is_file())
        self.cache_room, self.cache = _room(Path(constants.HF_HUB_CACHE).expanduser().absolute())

    def problem(self) -> str:
        """Why the run does not find room; empty where it does."""
        needs = sum(self.written.values()), sum(self.downloads.values())
        shared = os.stat(self.here).st_dev == os.stat(self.cache).st_dev
        for key, needed, room, advice in (
            ("output_dir", needs[0] + shared * needs[1], self.room, "Lower save_total_limit, or"),
            ("HF_HOME", needs[1], self.cache_room, "Set HF_HOME to a folder of another disk, or"),
        ):
            if needed > room:
                return (
                    f"the disk is too small for {key}: {format_size(needed)} are needed and"
                    f" {format_size(room)} free in {self.here if key == 'output_dir' else self.cache}."
                    f" {advice} choose another output_dir."
                )
        return ""

    def check(self) -> None:
        """Raise a ConfigError where there is no room."""
        if problem := self.problem():
            raise ConfigError(problem)

    def describe(self, plan: Plan) -> None:
        """Add it to a plan."""
        problem, total = self.problem(), format_size(sum(self.written.values()))
        parts = ", ".join(f"{name} {format_size(size)}" for name, size in self.written.items())
        free = f"of {format_size(self.room)} free in {self.here}"
        short = "; TOO SMALL" if problem else ""
        plan.add("disk", f"{total} {free}{f': {parts}' if parts else ''}{short}")
        for n, (name, size) in enumerate(self.downloads.items()):
            plan.add("" if n else "downloads", f"{format_size(size)}  {name}")
        if plan.config.devices is None:  # else the disk is that of another machine
            plan.refuse(problem)


def list_written(
    config: RunConfig, model: float, state: float, final: float | None = None
) -> dict[str, float]:
    """Bytes that a run writes, by what they are.

    Args:
        config: of the run.
        model: bytes of the model in a checkpoint.
        state: bytes of its trainer state.
        final: bytes of the final model; None for those of a checkpoint's.
    """
    steps, limit = config.save_steps, config.save_total_limit
    every = -(-config.max_steps // steps) if steps else 0
    count = every if limit is None else min(every, limit + 1)  # one is written before one goes
    sizes = f"{format_size(model)} model and {format_size(state)} trainer state"
    kept = {f"{count} checkpoints at a time of {sizes}, in all": count * (model + state)}
    return {**(kept if count else {}), "final": model if final is None else final}


def _room(place: Path) -> tuple[int, Path]:
    """Free bytes of a folder, and the first of its parents that is there."""
    here = next(folder for folder in (place, *place.parents) if folder.is_dir())
    return shutil.disk_usage(here).free, here


def format_size(size: float) -> str:
    """A number of bytes in MiB or GiB."""
    unit, power = ("GiB", 30) if size >= 2**29 else ("MiB", 20)
    return f"{size / 2**power:.2f} {unit}"
