"""Disk that a run needs for what it writes and what it downloads."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from huggingface_hub import constants

from mmrl.config import ConfigError
from mmrl.planning.plan_page import Plan, format_size
from mmrl.pretrained.known import find_here
from mmrl.run_config import RunConfig

VQ_BYTES = 0.5e9
"""About the size of showlab/magvitv2."""


class Disk:
    """The disk of a run.

    Args:
        output_dir: of the run; the checkpoints that it holds count as free.
        written: bytes by what is written there.
        downloads: bytes of what is loaded from the hub, by its id, unless it is here.
    """

    def __init__(
        self, output_dir: str, written: Mapping[str, float], downloads: Mapping[str, float]
    ) -> None:
        self.written, self.place = written, Path(output_dir).expanduser().absolute()
        self.downloads = {
            name: size
            for name, size in downloads.items()
            if name and find_here("model.path", name) is None
        }

    def problem(self) -> str:
        """Why the run finds no room; empty where it does."""
        held = (self.place / "checkpoints").rglob("*")
        wanted = sum(self.written.values()) - sum(f.stat().st_size for f in held if f.is_file())
        cache = Path(constants.HF_HUB_CACHE).expanduser()
        needs = {self.place: wanted, cache: sum(self.downloads.values())}
        disks = {place: os.stat(_existing(place)).st_dev for place in needs}
        for place in needs:
            free = shutil.disk_usage(_existing(place)).free
            needed = sum(needs[other] for other in needs if disks[other] == disks[place])
            if needed > free:
                return (
                    f"the disk of {place} is too small: {format_size(needed)} are needed and"
                    f" {format_size(free)} free. Lower save_total_limit, choose another output_dir,"
                    " or set HF_HOME to a folder of another disk."
                )
        return ""

    def check(self) -> None:
        """Raise a ConfigError where there is no room."""
        if problem := self.problem():
            raise ConfigError(problem)

    def describe(self, plan: Plan) -> None:
        """Add it to a plan, which is refused for it unless it is for other devices than these."""
        here, problem = _existing(self.place), self.problem()
        free, total = shutil.disk_usage(here).free, sum(self.written.values())
        parts = "".join(f", {name} {format_size(size)}" for name, size in self.written.items())
        short = ", TOO SMALL" if problem else ""
        plan.add(
            "disk", f"{format_size(total)} of {format_size(free)} free in {here}{short}{parts}"
        )
        loaded = [f"{format_size(size)} {name}" for name, size in self.downloads.items()]
        plan.add("downloads", ", ".join(loaded) or "none of the model")
        plan.refuse("" if plan.config.devices else problem)


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
    kept = {f"{count} checkpoints at a time of {sizes}:": count * (model + state)}
    return {**(kept if count else {}), "final": model if final is None else final}


def _existing(place: Path) -> Path:
    return next(folder for folder in (place, *place.parents) if folder.is_dir())
