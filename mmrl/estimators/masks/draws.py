"""Random numbers and choices of mask strategies, each row from its own generator."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Generator, Tensor


def row_uniforms(where: Tensor, generators: Sequence[Generator]) -> Tensor:
    """[B, L] uniforms at the True entries of `where` (0 elsewhere), row by row."""
    out = torch.zeros(where.shape, device=where.device)
    counts = where.sum(1).tolist()
    draws = [torch.rand(n, generator=g) for n, g in zip(counts, generators, strict=True)]
    out[where] = torch.cat(draws).to(where.device)
    return out


def row_levels(generators: Sequence[Generator], device: torch.device) -> Tensor:
    """[B] float64 uniforms in [0, 1), one per row."""
    draws = [torch.rand(1, generator=g, dtype=torch.float64) for g in generators]
    return torch.cat(draws).to(device)


def counts_at(level: Tensor, where: Tensor, lowest: float, highest: float) -> Tensor:
    """[B] int64: a number of positions, uniform over its range where `level` is uniform.

    The range is lowest n .. highest n, at least 1, with n the True entries of a row of `where`.
    """
    number = where.sum(-1).double()
    # products such as 0.1 x 10 must not be pushed over the next integer by rounding
    first = (lowest * number - 1e-9).ceil().clamp(min=1)
    last = (highest * number + 1e-9).floor().maximum(first)
    return (first + (level * (last - first + 1)).floor()).minimum(last).long()


def lowest_of(uniforms: Tensor, where: Tensor, counts: Tensor) -> Tensor:
    """[B, L] bool: the `counts` [B] True entries of `where` with the lowest uniforms."""
    place = uniforms.masked_fill(~where, 2.0).argsort(-1).argsort(-1)
    return (place < counts[:, None]) & where


def at_least_one(hidden: Tensor, uniforms: Tensor, where: Tensor) -> Tensor:
    """`hidden` [.., B, L], with the lowest-drawn position of a row that hides nothing."""
    first = uniforms.masked_fill(~where, 2.0).argmin(-1, keepdim=True)
    alone = torch.zeros_like(hidden).scatter(-1, first, True)
    return (hidden | (alone & ~hidden.any(-1, keepdim=True))) & where
