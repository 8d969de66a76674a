"""Blocks of a size that the prompts say, each its own (Block-R1, arXiv 2605.11726).

`block_size: prompt` reads the column `block_size` of the prompts; `data.columns` names another one,
such as `br1_best_block_size` of the paper's data. Rows of one size are written together, as with
that size in the settings; all take the same number of steps over their blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from mmrl.config import ConfigError, check
from mmrl.generation.masked.canvas import OWN_SIZE, MaskedCanvas, read_block_size
from mmrl.generation.strategy import OF_PROMPT
from mmrl.types import Prompt, Rollout

if TYPE_CHECKING:
    from torch import Generator

    from mmrl.generation.masked.samplers.loop_config import LoopConfig
    from mmrl.models import Policy

ALLOWED = "an integer of at least 1, which sampler.block_size: prompt reads"


def check_own_blocks(config: LoopConfig, prompts: Sequence[Prompt], length: int | None) -> None:
    """Raise a ConfigError, with its place, for a prompt whose rollouts of `length` positions cannot
    be written in blocks of the size it says; None where the length is not known."""
    for prompt in prompts if config.block_size == OF_PROMPT else ():
        key = f"{prompt.place or prompt.id}: {OWN_SIZE}"
        value, size = prompt.metadata.get(OWN_SIZE), read_block_size(prompt.metadata)
        check(size is not None, key, value, ALLOWED, "data.columns names another column.")
        if length is not None and size is not None:
            fits = length % size == 0 and config.steps % (length // size) == 0
            allowed = f"a divisor of the {length} response positions, and the number of blocks one"
            check(fits, key, size, f"{allowed} of the {config.steps} steps")


def write_by_size(
    write: Callable[..., Rollout],
    policy: Policy,
    canvas: MaskedCanvas,
    config: Any,
    generator: Generator | Sequence[Generator],
) -> Rollout:
    """Write the rows of each size as `write` does; see `mmrl.samplers.sample`. Raises ConfigError:
    a prompt of the rows has no size."""
    import torch

    if canvas.sizes is None:
        column = f"not all of these prompts have {OWN_SIZE}, {ALLOWED}"
        raise ConfigError(f"{column}; add the column, or set sampler.block_size to a number.")
    draws = generator if isinstance(generator, Sequence) else [generator] * len(canvas)
    pairs = [*zip(canvas.sizes.amax(1).tolist(), draws, strict=True)]
    parts, order = [], []
    for size in dict.fromkeys(size for size, _ in pairs):
        rows = [row for row, (own, _) in enumerate(pairs) if own == size]
        part = canvas[torch.tensor(rows, device=canvas.tokens.device)]
        some = [pairs[row][1] for row in rows]
        parts.append(write(policy, part, replace(config, block_size=size), some))
        order += rows
    places = torch.tensor(order, device=canvas.tokens.device).argsort()
    return replace(Rollout.join(parts)[places], settings=asdict(config))
