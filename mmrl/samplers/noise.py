"""Random numbers of a sampler, in two layouts of the same distributions.

`compact` draws one uniform per position and purpose from a generator per row: what a row gets does
not depend on its neighbours, on the vocabulary or on which positions are still open. `reference`
draws over full tensors in the order of the public samplers, from one generator for the batch, and
reproduces them token for token.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Generator, Tensor


def row_generators(generator: Generator | Sequence[Generator], rows: int) -> list[Generator]:
    """One generator per row: the given ones, or new ones seeded by draws from a single one.

    Raises:
        ValueError: a sequence of another length than the batch.
    """
    if isinstance(generator, Generator):
        device = generator.device
        seeds = torch.randint(2**62, (rows,), generator=generator, device=device).tolist()
        return [Generator().manual_seed(seed) for seed in seeds]
    if len(generator) != rows:
        raise ValueError(f"{len(generator)} generators for {rows} rows; give one per row, or one")
    return list(generator)


def uniform(generators: Sequence[Generator], response: Tensor) -> Tensor:
    """[B, L] float32 uniforms in [0, 1) at the True entries of `response`, 0 elsewhere.

    Drawn on the generators' device (the CPU), so that a GPU run sees the same numbers.
    """
    counts = response.sum(1).tolist()
    draws = [torch.rand(n, generator=g) for n, g in zip(counts, generators, strict=True)]
    out = torch.zeros(response.shape, device=response.device)
    out[response] = torch.cat(draws).to(response.device)
    return out


def categorical(probs: Tensor, uniforms: Tensor) -> Tensor:
    """Inverse-CDF draws: [N, C] probabilities and [N] uniforms -> [N] int64 column indices."""
    cdf = probs.double().cumsum(-1)
    points = (uniforms.double() * cdf[:, -1]).unsqueeze(-1)
    return torch.searchsorted(cdf, points, right=True).squeeze(-1).clamp(max=probs.shape[-1] - 1)


def gumbel(uniforms: Tensor) -> Tensor:
    """Standard Gumbel noise from uniforms; both logarithms are kept finite by a floor of 1e-20."""
    return -torch.log((-torch.log(uniforms.clamp(min=1e-20))).clamp(min=1e-20))
