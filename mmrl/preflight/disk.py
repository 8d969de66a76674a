"""Disk that a run needs: its checkpoints, what it downloads, and the codes of its images."""

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from mmrl.pretrained.known import known_config
from mmrl.run_config import RunConfig

VQ_BYTES = 0.5e9
"""About the size of showlab/magvitv2."""
CODE_BYTES = 4
"""Of a code of an image in the cache."""


def describe_disk(
    config: RunConfig,
    model: float,
    state: float,
    final: float | None = None,
    downloads: Mapping[str, float] | None = None,
) -> Iterator[str]:
    """Lines about the disk of a run.

    Args:
        config: of the run.
        model: bytes of the model in a checkpoint.
        state: bytes of its trainer state.
        final: bytes of the final model; None for those of a checkpoint's.
        downloads: bytes of what is loaded from the hub, by its id, unless it is here.
    """
    steps, limit = config.save_steps, config.save_total_limit
    every = -(-config.max_steps // steps) if steps else 0
    count = every if limit is None else min(every, limit + 1)  # one is written before one goes
    sizes = {"final": model if final is None else final, "checkpoints": count * (model + state)}
    yield (
        f"checkpoints {format_size(sizes['checkpoints'])}  {count} at a time of"
        f" {format_size(model).strip()} model and {format_size(state).strip()} trainer state"
    )
    yield f"final       {format_size(sizes['final'])}"
    for name, size in (downloads or {}).items():
        if not Path(name).expanduser().is_dir() and known_config(name) is None:
            sizes[name] = size
            yield f"download    {format_size(size)}  {name}"
    place = Path(config.output_dir).expanduser().absolute()
    here = next(folder for folder in (place, *place.parents) if folder.is_dir())
    free, needed = shutil.disk_usage(here).free, sum(sizes.values())
    yield f"total       {format_size(needed)}  of {format_size(free).strip()} free in {here}"
    if needed > free:
        yield "too small   lower save_total_limit, or choose another output_dir"


def format_size(size: float) -> str:
    """A number of bytes in MiB or GiB."""
    unit, power = ("GiB", 30) if size >= 2**29 else ("MiB", 20)
    return f"{size / 2**power:9.2f} {unit}"
