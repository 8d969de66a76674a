"""Different numbers of forward passes of a model that processes share.

A forward pass gathers weights from all processes, so that all must take part in each. Where
completions have a fixed length, processes make the same forward passes and need no agreement; this
is for prompts, evaluations and samplers where their numbers differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from PIL import Image
from torch import nn

from mmrl.features import PromptImage
from mmrl.models.network.vision import find_vision
from mmrl.runtime.interrupt import Interrupted, hold_stops

if TYPE_CHECKING:
    from mmrl.models import Policy


def sample_by_block(policy: Policy, device: torch.device) -> None:
    """Let a policy sample while every forward pass gathers its weights, block by block; processes
    agree on each pass only where their numbers differ."""
    model = policy.model
    policy.sampling = lambda ragged: keep_pace(model, device) if ragged else hold_stops()
    policy.shares_forwards = True


@contextmanager
def keep_pace(model: nn.Module, device: torch.device) -> Iterator[None]:
    """Let processes call a sharded model different numbers of times, without gradient.

    A call gathers weights from all processes, so all must take part, and a call that encodes images
    gathers other weights than one that reads tokens. Before each call the processes agree on its
    kind: images, as long as any process has some. A process that needs the other kind, has finished
    or was asked to stop takes part with a blank input, until all have left.
    """
    blanks, along = _blank_calls(model, device), False

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
        mine = _LOOK if arguments.get("images") is not None else _READ
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


_LOOK, _READ = 0, 1


def _blank_calls(model: nn.Module, device: torch.device) -> list[dict[str, Any]]:
    """The smallest image input of a model (empty without a vision tower), and of tokens."""
    look: dict[str, Any] = {}
    for vision in find_vision(model):
        tiling, dot = vision.tiling, Image.new("RGB", (1, 1))
        shown = PromptImage(*dot.size, tiling.count(*dot.size), tiling.rows(*dot.size))
        look = {"images": tiling.cut(dot).to(device), "shown": (shown,)}
    return [look, {"input_ids": torch.zeros(1, 1, dtype=torch.long, device=device)}]
