"""Corruptions of completions for supervised training: functions from a completion and random
numbers to a view with weights.

Notation: a completion y of n tokens after a prompt x, H the hidden positions, CE_j(H) = -log
p(y_j | x, y without H). E, the expected sum of weight times CE over a view, is the bound that the
corruption states, in nats per completion.

Random masking, LLaDA's objective (arXiv 2502.09992, equation 5):

    p ~ U[eps, 1),  each token hidden with probability p,  weight 1/p

    E = E_p sum_H P(H | p) / p sum_{j in H} CE_j(H)

For eps -> 0 this is the bound of any-order models, the mean negative log-likelihood over all n!
orders in which the completion could be written (arXiv 2110.02037).

Semi-autoregressive masking, the states that a block sampler passes through:

    block k of K uniformly,  p ~ U[eps, 1)
    hidden: all later blocks, and each token of block k with probability p;  weight K/p in block k

    E = sum_k E_p sum_H P(H | p) / p sum_{j in H} CE_j(H and later blocks)

with H within block k: the sum over blocks of the bound above given the blocks before. Source:
`semi-ar` of dLLM-RL (arXiv 2509.06949). Deviations: one rate per view instead of one per token;
weights 1/p; one block at a time instead of all as rows of a batch.

Block diffusion, every block at once, each after the clean blocks before it:

    row: prompt | y | copy of y        copies of block k hidden with probability p_k, weight 1/p_k

    p_k ~ U[eps, 1),   E = sum_k E_p sum_H P(H | p) / p sum_{j in H} CE_j(H; nothing later)

A copy sees the prompt, the clean blocks before its block and the copies of that block; a clean
token sees the prompt and the clean blocks up to its own. A copy has the position of its original.
Source: BD3-LM (arXiv 2503.09573) and SDAR (2510.06303), whose public scripts draw a rate per token
or one for all blocks. Where the network's attention is not causal between blocks, its samplers put
masks after a block that this training has not seen.

Orders of writing: a completion is learned as it was recorded, or from left to right:

    slice s of S uniformly: the tokens of successive steps (trace) or places (left to right)
    hidden: the slice and everything after it;  weight S within the slice

    E = sum_s sum_{j in slice s} CE_j(slices s, s+1, ..., S)

With one step per slice a trace is the negative log-likelihood of the recorded rollout under its
sampler. Source: TraceRL (arXiv 2509.06949), whose shrinking of traces is `steps`; one slice at a
time instead of all as rows of a batch. Of a block trace a slice of every block is learned at once,
each in the copy of its block, and E is the sum over blocks. With one token per slice, left to right
is the exact negative log-likelihood under left-to-right sampling, which JustGRPO scores (arXiv
2601.15165).

Causal training hides nothing. Every token of prompt and completion attends to those before it, the
output before a token predicts it, and E = sum_j -log p(y_j | x, y_1, ..., y_{j-1}). Source: `ar` of
dLLM-RL for Dream.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from mmrl.config import above, at_least, check

if TYPE_CHECKING:
    from torch import Generator, Tensor

EPS = 1e-3
"""Lowest masking rate, as in LLaDA (arXiv 2502.09992)."""


@dataclass
class Chance:
    """The uniform numbers in [0, 1) that decide a view; all of them are drawn, used or not.

    Attributes:
        choice: picks one of several blocks or slices.
        rates: [n], masking rates, one per block.
        tokens: [n], compared with the rate.
    """

    choice: float
    rates: Tensor
    tokens: Tensor

    def pick(self, count: int) -> int:
        """Pick an index below `count`, each with the same probability."""
        return min(int(self.choice * count), count - 1)

    def rate(self, count: int = 1, low: float | None = None, high: float = 1.0) -> Tensor:
        """The first `count` masking rates, in [low, high); without `low` from EPS on."""
        low = EPS if low is None else low
        return (high - low) * self.rates[:count] + low


def draw_chance(length: int, generator: Generator) -> Chance:
    """Draw the numbers for a completion of `length` tokens."""
    import torch

    numbers = torch.rand(2 * length + 1, generator=generator)
    return Chance(float(numbers[0]), numbers[1 : length + 1], numbers[length + 1 :])


@dataclass
class View:
    """The m columns after the prompt, made of the n tokens of a completion.

    A column attends to its prompt and to all columns of blocks up to its own. Where its block has
    copies, a copy sees the copies of its block instead of the originals, and nothing else sees
    copies.

    Attributes:
        index: [m] int64, which token of the completion the column holds.
        hidden: [m] bool, whether the network reads a mask token there.
        weight: [m] float32, of the column's cross-entropy; 0 is not scored.
        block: [m] int64.
        copy: [m] bool.
    """

    index: Tensor
    hidden: Tensor
    weight: Tensor
    block: Tensor
    copy: Tensor


def build_view(hidden: Tensor, weight: Tensor) -> View:
    """The completion with `hidden` [n] masked; every column attends to every other."""
    zeros = hidden.long() * 0
    return View(number_blocks(hidden, 1), hidden, weight.float(), zeros, zeros.bool())


def number_blocks(tokens: Tensor, size: int) -> Tensor:
    """[n] int64, the number of the block of each token."""
    import torch

    return torch.arange(len(tokens)) // size


@dataclass(kw_only=True)
class RandomConfig:
    """Hide each token at a rate drawn per completion."""

    min_mask_rate: Annotated[float, above(0, up_to=1)] = EPS
    """Lowest rate."""
    max_mask_rate: Annotated[float, above(0, up_to=1)] = 1.0
    """Highest rate."""
    weights: Literal["inverse_rate", "mean"] = "inverse_rate"
    """Of hidden tokens: `inverse_rate` makes the loss a bound of the likelihood; `mean` is the mean
    cross-entropy over those hidden in the view, as in dLLM-RL (arXiv 2509.06949)."""

    def __post_init__(self) -> None:
        low, high = self.min_mask_rate, self.max_mask_rate
        check(low <= high, "corruption.min_mask_rate", low, f"at most max_mask_rate, {high}")


@dataclass(kw_only=True)
class BlockConfig:
    """Append a corrupted copy of the completion to the clean one."""

    block_size: Annotated[int, at_least(1)] = 32
    """Tokens of a block, that of the sampler the model is meant for."""


@dataclass(kw_only=True)
class SemiARConfig(BlockConfig, RandomConfig):
    """Hide tokens of one block, and all later blocks."""


@dataclass(kw_only=True)
class TraceConfig:
    """Hide a slice of the recorded steps, and everything written later."""

    steps: Annotated[int, at_least(1)] = 1
    """Successive steps learned at once."""


@dataclass(kw_only=True)
class BlockTraceConfig(BlockConfig, TraceConfig):
    """Append a copy in which a slice of the steps of every block is hidden, and what is later."""


@dataclass(kw_only=True)
class CausalConfig:
    """Hide nothing, and let each token see those before it."""


@dataclass(kw_only=True)
class LeftToRightConfig:
    """Hide the tokens from one position on."""

    tokens: Annotated[int, at_least(1)] = 1
    """Successive tokens learned at once."""


def corrupt_random(order: Tensor, chance: Chance, config: RandomConfig) -> View:
    """See `Corruption`."""
    size = config.block_size if isinstance(config, SemiARConfig) else len(order)
    block = number_blocks(order, size)
    count = int(block[-1]) + 1
    rate = chance.rate(low=config.min_mask_rate, high=config.max_mask_rate)
    chosen = chance.pick(count)
    scored = (block == chosen) & (chance.tokens < rate)
    weight = scored * count / rate
    if config.weights == "mean":
        weight = scored * (len(order) / scored.sum().clamp(min=1))
    return build_view(scored | (block > chosen), weight)


def corrupt_block(order: Tensor, chance: Chance, config: BlockConfig) -> View:
    """See `Corruption`."""
    block = number_blocks(order, config.block_size)
    rate = chance.rate(int(block[-1]) + 1)[block]
    hidden = chance.tokens < rate
    return _copy_blocks(block, hidden, hidden / rate)


def _copy_blocks(block: Tensor, hidden: Tensor, weight: Tensor) -> View:
    """The clean completion, and after it a copy of its blocks in which tokens are hidden."""
    import torch

    clean = torch.zeros_like(hidden)
    return View(
        index=number_blocks(block, 1).repeat(2),
        hidden=torch.cat((clean, hidden)),
        weight=torch.cat((clean, weight.float())),
        block=block.repeat(2),
        copy=torch.cat((clean, ~clean)),
    )


def corrupt_trace(order: Tensor, chance: Chance, config: TraceConfig) -> View:
    """See `Corruption`."""
    return _hide_slice(order.unique(return_inverse=True)[1] // config.steps, chance)


def corrupt_block_trace(order: Tensor, chance: Chance, config: BlockTraceConfig) -> View:
    """See `Corruption`."""
    import torch

    block = number_blocks(order, config.block_size)
    slices, chosen, count = (torch.zeros_like(block) for _ in range(3))
    for k, part in enumerate(order.split(config.block_size)):
        own, here = part.unique(return_inverse=True)[1] // config.steps, block == k
        slices[here], count[here] = own, own.max() + 1
        chosen[here] = (chance.rates[k] * count[here]).long().clamp(max=own.max())
    return _copy_blocks(block, slices >= chosen, (slices == chosen) * count)


def corrupt_causal(order: Tensor, chance: Chance, config: CausalConfig) -> View:
    """See `Corruption`."""
    visible = build_view(order < 0, order >= 0)
    return replace(visible, block=number_blocks(order, 1))


def corrupt_left_to_right(order: Tensor, chance: Chance, config: LeftToRightConfig) -> View:
    """See `Corruption`."""
    return _hide_slice(number_blocks(order, config.tokens), chance)


def _hide_slice(slices: Tensor, chance: Chance) -> View:
    """Hide and score the tokens of one slice, whose number each token has; hide all later ones."""
    count = int(slices.max()) + 1
    chosen = chance.pick(count)
    return build_view(slices >= chosen, (slices == chosen) * float(count))


class Corruption(NamedTuple):
    """A row of `CORRUPTIONS`.

    `corrupt(order, chance, config)` builds the view of a completion of n tokens: `order` [n] int64
    is the step that wrote each, `config` an instance of `Config`. `recorded`: it needs the recorded
    order. `continued`: untrained masks may follow the view, as in the canvas of a sampler.
    `prompt_block`: tokens of a block of the prompt, where the network does not say it.
    """

    corrupt: Callable[[Tensor, Chance, Any], View]
    Config: type[Any]
    recorded: bool = False
    continued: bool = True
    prompt_block: int | None = None


CORRUPTIONS = {
    "random": Corruption(corrupt_random, RandomConfig),
    "semi_ar": Corruption(corrupt_random, SemiARConfig),
    "block": Corruption(corrupt_block, BlockConfig, continued=False),
    "trace": Corruption(corrupt_trace, TraceConfig, recorded=True),
    "block_trace": Corruption(
        corrupt_block_trace, BlockTraceConfig, recorded=True, continued=False
    ),
    "causal": Corruption(corrupt_causal, CausalConfig, continued=False, prompt_block=1),
    "left_to_right": Corruption(corrupt_left_to_right, LeftToRightConfig),
}
"""Corruptions by the name used in configurations."""
