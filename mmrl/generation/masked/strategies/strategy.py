"""Strategies that hide tokens: their common options, and how positions are drawn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

from mmrl.config import above, at_least, check
from mmrl.generation.masked.canvas import MaskedCanvas
from mmrl.generation.masked.hidden import Hidden
from mmrl.generation.strategy import Draw, Strategy, StrategyConfig
from mmrl.types import Passes, Rollout

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(kw_only=True)
class MaskConfig(StrategyConfig):
    """Options of every strategy that hides tokens."""

    prompt_mask_rate: Annotated[float, at_least(0, up_to=1)] = 0.0
    """Share of prompt tokens hidden as well; they are never scored."""


@dataclass(kw_only=True)
class RisingRateConfig(MaskConfig):
    """Options of strategies whose rate rises over the inner iterations."""

    min_mask_rate: Annotated[float, at_least(0, up_to=1)] = 0.0
    """Lowest share of hidden positions. random and ar_like rise from it to all over num_iterations,
    so that it changes nothing where that is 1."""


@dataclass(kw_only=True)
class RateRangeConfig(RisingRateConfig):
    """Options of strategies that draw the rate from a range."""

    max_mask_rate: Annotated[float, above(0, up_to=1)] = 1.0
    """Highest share of hidden positions, where the share is drawn."""

    def __post_init__(self) -> None:
        super().__post_init__()
        low, high = self.min_mask_rate, self.max_mask_rate
        check(low <= high, "algorithm.max_mask_rate", high, f"at least min_mask_rate, {low:g}")


def hiding(
    plan: Callable[[Rollout, Any, Draw], Passes], config: type[MaskConfig] = MaskConfig, **row: Any
) -> Strategy:
    """The row of a strategy that hides tokens of the response, and of the prompt where the options
    say so; the other arguments are those of `Strategy`."""

    def plan_both(rollout: Rollout, config: MaskConfig, draw: Draw) -> Passes:
        passes = plan(rollout, config, draw)
        if config.prompt_mask_rate == 0:
            return passes
        return hide_prompt(passes, rollout.canvas, config.prompt_mask_rate, draw)

    return Strategy(plan_both, config, **row)


def passes_of(
    canvas: MaskedCanvas, hidden: Sequence[Tensor], weight: Sequence[Tensor] | None = None
) -> Passes:
    """Passes of K masks [B, L] bool that score every hidden position that counts, with K weights
    [B, L], 1 if not given.

    Response positions that do not count (after the end of a text) are hidden too: their tokens
    would reveal where the text ends."""
    import torch

    masks = torch.stack(list(hidden))
    scored = masks & canvas.counted
    weights = scored.float() if weight is None else torch.stack(list(weight)).float() * scored
    return Passes(Hidden(masks | (canvas.response & ~canvas.counted)), scored, weights)


def hide_prompt(passes: Passes, canvas: MaskedCanvas, rate: float, draw: Draw) -> Passes:
    """Hide prompt tokens as well, each with probability `rate` (d1, SPG)."""
    import torch

    prompt = ~canvas.response if canvas.attend is None else ~canvas.response & canvas.attend
    noise = [draw.uniforms(prompt) for _ in range(len(passes))]
    hidden = (torch.stack(noise) < rate) & prompt
    return replace(passes, query=passes.query.map(lambda mask: mask | hidden))


def hide_at(
    level: Tensor, where: Tensor, config: RateRangeConfig, draw: Draw
) -> tuple[Tensor, Tensor]:
    """[B, L] bool, hidden positions, and their number [B] int64, uniform over its range where
    `level` [B] is uniform; each set of positions equally likely. The range is low n .. high n, at
    least 1, with n the True entries of a row of `where` and the shares low and high of the
    options."""
    number = where.sum(-1).double()
    # products such as 0.1 x 10 must not be pushed over the next integer by rounding
    first = (config.min_mask_rate * number - 1e-9).ceil().clamp(min=1)
    last = (config.max_mask_rate * number + 1e-9).floor().maximum(first)
    counts = (first + (level * (last - first + 1)).floor()).minimum(last).long()
    place = draw.uniforms(where).masked_fill(~where, 2.0).argsort(-1).argsort(-1)
    return (place < counts[:, None]) & where, counts


def at_least_one(hidden: Tensor, uniforms: Tensor, where: Tensor) -> Tensor:
    """`hidden` [B, L], with the lowest-drawn position of a row that hides nothing."""
    first = uniforms.masked_fill(~where, 2.0).argmin(-1, keepdim=True)
    alone = hidden.new_zeros(hidden.shape).scatter(-1, first, True)
    return (hidden | (alone & ~hidden.any(-1, keepdim=True))) & where
