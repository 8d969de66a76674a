"""Random numbers of a sampler: one uniform per position and purpose, from a seed per row.

What a row gets does not depend on its neighbours, on the vocabulary or on which positions are still
open.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mmrl.randomness import as_generators
from mmrl.randomness import generator as named_generator

if TYPE_CHECKING:
    from torch import Generator, Tensor


def row_seeds(generator: Generator | Sequence[Generator], rows: int) -> list[int]:
    """One seed per row, drawn from its own generator or from the single one of the batch.

    Raises:
        TypeError: see `as_generators`.
        ValueError: a sequence of another length than the batch.
    """
    own = as_generators(generator)
    if not isinstance(generator, Sequence):
        return _draw_seeds(own[0], rows)
    if len(own) != rows:
        raise ValueError(f"{len(own)} generators for {rows} rows; give one per row, or one")
    return [_draw_seeds(each, 1)[0] for each in own]


def uniform(seeds: Sequence[int], response: Tensor, *names: int | str) -> Tensor:
    """[B, L] float32 uniforms in [0, 1) at the True entries of `response`, 0 elsewhere.

    A row's numbers follow from its seed and the names of the draw alone, so a step that draws
    nothing for some rows changes nothing later. Drawn on the CPU, so that a GPU run gets the same.
    """
    import torch

    counts = response.sum(1).tolist()
    draws = [
        torch.rand(n, generator=named_generator(seed, *names))
        for n, seed in zip(counts, seeds, strict=True)
    ]
    out = torch.zeros(response.shape, device=response.device)
    out[response] = torch.cat(draws).to(response.device)
    return out


def categorical(probs: Tensor, uniforms: Tensor) -> Tensor:
    """Inverse-CDF draws: [N, C] probabilities and [N] uniforms -> [N] int64 column indices."""
    import torch

    cdf = probs.double().cumsum(-1)
    points = (uniforms.double() * cdf[:, -1]).unsqueeze(-1)
    return torch.searchsorted(cdf, points, right=True).squeeze(-1).clamp(max=probs.shape[-1] - 1)


def gumbel(uniforms: Tensor) -> Tensor:
    """Standard Gumbel noise from uniforms; both logarithms are kept finite by a floor of 1e-20."""
    return -(-uniforms.clamp(min=1e-20).log()).clamp(min=1e-20).log()


def _draw_seeds(generator: Generator, count: int) -> list[int]:
    import torch

    device = generator.device
    return torch.randint(2**62, (count,), generator=generator, device=device).tolist()
