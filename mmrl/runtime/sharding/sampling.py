"""How a model that processes share samples: with weights gathered once per phase, or by block.

A denoising step of a block is short, so gathering it from the other processes can take longer than
the step. Gathered once per phase, weights cost memory instead: that of one whole copy.

By block a forward pass gathers weights from all processes, so that all must take part in each.
Where completions have a fixed length, processes make the same forward passes; for prompts,
evaluations and samplers where their numbers differ, they agree on each.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import nn

from mmrl.models.network.network import find_networks
from mmrl.runtime.interrupt import Interrupted, hold_stops
from mmrl.runtime.placement import device_memory

if TYPE_CHECKING:
    from mmrl.models import Policy

logger = logging.getLogger(__name__)
RolloutWeights = Literal["whole", "by_block", "auto"]
SHARE = 0.5
"""Largest share of a device's memory that `auto` gives to whole weights: the rest is for shards,
caches and logits."""


def gathers_once(wish: RolloutWeights, weights: float, memory: float) -> bool:
    """Whether weights of so many bytes are gathered once per phase on devices whose smallest has
    `memory` bytes, 0 where it is not known."""
    return wish == "whole" or wish == "auto" and weights <= SHARE * memory


def choose_together(wish: RolloutWeights, model: nn.Module, accelerator: Accelerator) -> bool:
    """`gathers_once` for the devices of this run, with a line in the log; all call this."""
    weights = sum(p.numel() * p.element_size() for p in model.parameters())
    memory = min(gather_object([device_memory(accelerator.device)]))
    whole = gathers_once(wish, weights, memory)
    choice = "whole" if whole else "by_block"
    logger.info("weights: rollouts gather them %s (rollout_weights: %s)", choice, wish)
    return whole


def sample_by_block(policy: Policy, device: torch.device) -> None:
    """Let a policy sample while every forward pass gathers its weights, block by block; processes
    agree on each pass only where their numbers differ."""
    model = policy.model
    policy.sampling = lambda differ: keep_pace(model, device) if differ else hold_stops()
    policy.shares_forwards = True


@contextmanager
def keep_pace(model: nn.Module, device: torch.device) -> Iterator[None]:
    """Let processes call a sharded model different numbers of times, without gradient.

    Before each call the processes agree on its kind, see `Network.blank`: the first that any of
    them has. A process that needs another kind, has finished or was asked to stop takes part with a
    blank input, until all have left.
    """
    [network], along = find_networks(model), False
    blanks = network.blank()

    def agreed(mine: int | None) -> int | None:
        wanted = torch.zeros(len(blanks), device=device)
        if mine is not None:
            wanted[mine] = 1
        torch.distributed.all_reduce(wanted)
        return next(iter(wanted.nonzero().flatten().tolist()), None)

    def call_along(kind: int) -> None:
        nonlocal along
        along = True
        with torch.no_grad():
            model(**blanks[kind])
        along = False

    def announce(_: nn.Module, __: Any, arguments: Mapping[str, Any]) -> None:
        given = {name for name, value in arguments.items() if value is not None}
        kinds = (n for n, blank in enumerate(blanks) if blank.keys() <= given)
        mine = next(kinds, len(blanks) - 1)
        while not along and (kind := agreed(mine)) not in (mine, None):
            call_along(kind)

    hook = model.register_forward_pre_hook(announce, prepend=True, with_kwargs=True)
    left: Interrupted | None = None
    try:
        yield
    except Interrupted as stop:  # between two calls, so that the others may go on
        left = stop
    finally:
        hook.remove()
    while (kind := agreed(None)) is not None:
        call_along(kind)
    if left is not None:
        raise left
