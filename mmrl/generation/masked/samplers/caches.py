"""Caches of the denoising loop that are more than keys and values of some columns.

Exact, for a network whose attention is causal between blocks: nothing that is written later changes
the keys and values of a finished block, so each block is computed once more when it is complete,
together with the first step of the next one, and never again. The blocks of the prompt are computed
once for all rows with the same prompt.

Refresh, Lumina-DiMOO's ML-Cache (arXiv 2510.06308) of logits, keys and values: a full step computes
all positions of a row. A partial one computes again those with the lowest logits, among all that
the row attends to, prompt included, and takes everything else from the last pass that computed it;
a token that was written since then still has the keys and values of a mask. The conditional and the
unconditional rows have separate sets. An approximation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from mmrl.config import ConfigError
from mmrl.generation.masked.canvas import MaskedCanvas
from mmrl.generation.masked.samplers.loop_config import LoopConfig
from mmrl.generation.masked.samplers.rule import forbid
from mmrl.generation.tokens.positions import Positions
from mmrl.generation.tokens.scoring.logits import network_inputs, read_prompts
from mmrl.types.guidance import Guidance

if TYPE_CHECKING:
    from mmrl.models import Policy


class ExactCache:
    """Keys and values of the finished blocks of some rows of a canvas.

    Attributes:
        rows: [r] int64, the rows of the canvas that are still computed.
        start: first column whose keys and values are not final.
        keys: the network's cache; with guidance the rows of each unconditional branch follow.
    """

    def __init__(self, policy: Policy, canvas: MaskedCanvas, guidance: Guidance) -> None:
        self.branches = guidance.branches
        self.rows = torch.arange(len(canvas), device=canvas.tokens.device)
        self.start = canvas.first_response_column
        length = canvas.tokens.shape[1]
        self.keys: Any = policy.network.new_cache(length)
        if self.start > 0:  # the complete blocks of the prompts, in one pass
            inputs = network_inputs(guidance.build_branches(canvas))
            given = {name: x[:, : self.start] for name, x in inputs.items()}
            cache = self.keys.at(0, self.start, self.start)
            read_prompts(policy, given, canvas.columns, cache)

    def keep(self, canvas: MaskedCanvas) -> Tensor:
        """[r] int64: the rows that are still computed; those that are complete are dropped."""
        kept = canvas.masked[self.rows].any(1).nonzero().flatten()
        if 0 < len(kept) < len(self.rows):
            self.keys.take_rows(
                torch.cat([kept + n * len(self.rows) for n in range(self.branches)])
            )
            self.rows = self.rows[kept]
        return self.rows

    def columns_of(self, canvas: MaskedCanvas, positions: Tensor) -> tuple[int, int]:
        """Half-open range of columns that in some row belong to the block at `positions` [B, L]."""
        assert canvas.blocks is not None
        number = canvas.blocks.where(positions, -1).amax(-1, keepdim=True)
        used = (canvas.blocks == number).any(0).nonzero().flatten().tolist()
        return used[0], used[-1] + 1


class RefreshCache:
    """The network of a rollout with this cache.

    Attributes:
        step: of the next forward pass.
        index: [R, n] int64, positions that a partial step computes in each row, the rows of the
            unconditional branches after the others; None for a full step.
    """

    def __init__(self, policy: Policy, canvas: MaskedCanvas, config: LoopConfig) -> None:
        if not policy.network.can_refresh:
            raise ConfigError(
                "sampler.cache is 'refresh', and the network of this checkpoint cannot compute"
                " single positions again; set it to none."
            )
        self.policy, self.config, self.step = policy, config, 0
        self.keys = policy.network.new_token_cache(canvas.tokens.shape[1])
        self.logits = self.largest = torch.empty(0)
        self.index: Tensor | None = None

    def __call__(self, canvas: MaskedCanvas, where: Tensor) -> Tensor:
        """Logits [N, C] at the True entries of `where`, guidance applied."""
        guidance = self.config.guidance
        branches = guidance.build_branches(canvas)
        inputs = network_inputs(branches)
        self.keys.index = self.index
        if self.index is not None:
            given = [name for name in ("input_ids", "feature_at") if name in inputs]
            inputs |= {name: inputs[name].gather(1, self.index) for name in given}
            inputs["position_ids"] = self.index
        logits = self.policy.model(**inputs, columns=canvas.columns, cache=self.keys).logits
        largest = logits.amax(-1).float()
        if self.index is None:
            self.logits, self.largest = logits, largest
        else:
            self.logits.scatter_(1, self.index[..., None].expand_as(logits), logits)
            self.largest.scatter_(1, self.index, largest)
        self.step += 1
        self.index = None
        if not is_full(self.step, self.config):
            attend = inputs.get("attention_mask")
            self.index = find_lowest(self.largest, attend, self.config.cache_ratio)
        known = Positions.find(where.repeat(len(branches), 1)).take(self.logits)
        return forbid(guidance.combine(known.chunk(len(branches))), canvas.forbidden_columns)


def is_full(step: int, config: LoopConfig) -> bool:
    """Whether a step computes all positions."""
    warmup = int(config.steps * config.warmup_ratio)
    return step <= warmup or (step - warmup) % config.refresh_interval == 0


def find_lowest(largest: Tensor, attend: Tensor | None, cache_ratio: float) -> Tensor:
    """Positions [R, n] whose `largest` logit [R, L] float32 is in the lowest part of their row, so
    that a share `cache_ratio` is kept, in rising order; rows with fewer than n repeat their last
    one. `attend` [R, L] bool is False on padding, which is never computed again; None without."""
    if attend is not None:
        largest = largest.masked_fill(~attend, torch.nan)
    bound = largest.nanquantile(1 - cache_ratio, dim=1, keepdim=True)
    found = Positions.find(largest <= bound)
    order, _ = found.in_columns(max(found.numbers))
    place = torch.arange(order.shape[1], device=order.device)
    return order.gather(1, place.minimum(found.counts[:, None] - 1))
