"""Random numbers of a sampler, in two layouts of the same distributions.

`compact` draws one uniform per position and purpose from a seed per row: what a row gets does not
depend on its neighbours, on the vocabulary or on which positions are still open. `reference`
draws over full tensors in the order of the public samplers, from one generator for the batch, and
reproduces them token for token.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Generator, Tensor

from mmrl.randomness import generator as named_generator


def row_seeds(generator: Generator | Sequence[Generator], rows: int) -> list[int]:
    """One seed per row, drawn from its own generator or from the single one of the batch.

    Raises:
        ValueError: a sequence of another length than the batch.
    """
    if isinstance(generator, Generator):
        return _seeds(generator, rows)
    if len(generator) != rows:
        raise ValueError(f"{len(generator)} generators for {rows} rows; give one per row, or one")
    return [_seeds(own, 1)[0] for own in generator]


def uniform(seeds: Sequence[int], response: Tensor, *names: int | str) -> Tensor:
    """[B, L] float32 uniforms in [0, 1) at the True entries of `response`, 0 elsewhere.

    A row's numbers follow from its seed and the names of the draw alone, so a step that draws
    nothing for some rows changes nothing later. Drawn on the CPU, so that a GPU run sees the same.
    """
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
    cdf = probs.double().cumsum(-1)
    points = (uniforms.double() * cdf[:, -1]).unsqueeze(-1)
    return torch.searchsorted(cdf, points, right=True).squeeze(-1).clamp(max=probs.shape[-1] - 1)


def gumbel(uniforms: Tensor) -> Tensor:
    """Standard Gumbel noise from uniforms; both logarithms are kept finite by a floor of 1e-20."""
    return -torch.log((-torch.log(uniforms.clamp(min=1e-20))).clamp(min=1e-20))


def _seeds(generator: Generator, count: int) -> list[int]:
    device = generator.device
    return torch.randint(2**62, (count,), generator=generator, device=device).tolist()
