"""Exact sums over all masks of a response of a few tokens, and estimates to hold against them.

The log-probs of a small random network are computed once for every one of the 2^n masks; masks
drawn by a strategy look theirs up.
"""

import itertools
import math
from functools import cache
from typing import Any

import torch
from torch import Tensor

from mmrl.algorithms import AlgorithmConfig
from mmrl.algorithms.bounds import BOUNDS
from mmrl.estimators import score
from mmrl.generation.masked.hidden import Hidden
from mmrl.generation.masked.strategies import STRATEGIES
from mmrl.types import Passes, Rollout
from tests.mmrl.canvases import VOCAB, generators, small_canvas
from tests.models.networks import bare_policy, small_network

FIRST = 4
"""Place of the first response position of `small_canvas`."""


@cache
def network_and_rollout(n: int) -> tuple[Any, Rollout]:
    """A small network and one finished rollout of n tokens, written one after the other."""
    canvas = small_canvas(1, n)
    draws = torch.Generator().manual_seed(5)
    canvas.tokens[canvas.response] = torch.randint(*VOCAB, (n,), generator=draws)
    order = torch.where(canvas.response, canvas.response.cumsum(-1) - 1, -1)
    nothing = torch.zeros(canvas.tokens.shape)
    return bare_policy(small_network(3)), Rollout(canvas, order, nothing, {})


@cache
def table(n: int) -> Tensor:
    """[2^n, n] float32: log-probs of the hidden tokens of each mask (bit i: position i hidden)."""
    policy, rollout = network_and_rollout(n)
    bits = torch.arange(2**n)[:, None] >> torch.arange(n) & 1
    hidden = torch.zeros(2**n, *rollout.canvas.tokens.shape, dtype=torch.bool)
    hidden[:, 0, FIRST : FIRST + n] = bits.bool()
    with torch.no_grad():
        logprobs, *_ = score(policy, rollout.canvas, Passes(Hidden(hidden), hidden, hidden.float()))
    return logprobs[:, 0, FIRST : FIRST + n]


def looked_up(passes: Passes, n: int) -> Tensor:
    """[K, B, L] log-probs of passes over copies of that rollout."""
    hidden = passes.query.mask[..., FIRST : FIRST + n]
    index = (hidden.long() << torch.arange(n)).sum(-1)
    logprobs = torch.zeros(passes.scored.shape)
    logprobs[..., FIRST : FIRST + n] = table(n)[index]
    return logprobs * passes.scored


def drawn(name: str, n: int, rows: int, iteration: int = 0, **options: Any) -> Passes:
    """Passes of a strategy over many copies of that rollout."""
    _, rollout = network_and_rollout(n)
    copies = rollout[torch.zeros(rows, dtype=torch.long)]
    return STRATEGIES[name](
        copies, AlgorithmConfig(strategy=name, **options), generators(rows), iteration
    )


def estimates(name: str, n: int, rows: int = 2500, **options: Any) -> Tensor:
    """[rows] estimates of the log-likelihood."""
    passes = drawn(name, n, rows, **options)
    return BOUNDS["elbo"](looked_up(passes, n), passes).values.flatten()


def evidence_bound(n: int, positions: tuple[int, ...] | None = None, later: int = 0) -> float:
    """Sum over masks S of `positions` of l_i(S) / (|S| C(n, |S|)): the mean over all orders.

    `later`: bits hidden besides, and not scored.
    """
    places = tuple(range(n)) if positions is None else positions
    total = 0.0
    for size in range(1, len(places) + 1):
        for chosen in itertools.combinations(places, size):
            scores = table(n)[sum(1 << i for i in chosen) | later]
            weight = 1 / (size * math.comb(len(places), size))
            total += weight * float(scores[list(chosen)].sum())
    return total


def mean_over_orders(n: int) -> float:
    """The mean over all n! orders of the log-likelihood of writing in that order."""
    totals = []
    for order in itertools.permutations(range(n)):
        hidden = [sum(1 << i for i in order[k:]) for k in range(n)]
        totals.append(sum(float(table(n)[h][i]) for h, i in zip(hidden, order, strict=True)))
    return sum(totals) / len(totals)


def assert_mean(values: Tensor, exact: float, precision: float = 0.02) -> None:
    """The mean is the exact value within four standard errors, which are small."""
    error = float(values.std()) / len(values) ** 0.5
    assert error < precision * abs(exact)
    assert abs(float(values.mean()) - exact) < 4 * error + 1e-5 * abs(exact)


def every_mask(n: int) -> tuple[Tensor, Passes]:
    """Log-probs [2^n - 1, 1, n] and passes of all masks, weighted by their chance under `uniform`.

    The mean over passes of the weighted scores is the exact expectation of what one draw gives.
    """
    masks = range(1, 2**n)
    hidden = torch.tensor([[[bool(mask >> i & 1) for i in range(n)]] for mask in masks])
    sizes = hidden.sum(-1, keepdim=True)
    chances = torch.tensor([1 / (n * math.comb(n, mask.bit_count())) for mask in masks])
    weight = hidden * (n / sizes) * chances[:, None, None] * len(hidden)
    return table(n)[1:, None], Passes(Hidden(hidden), hidden, weight)
