"""Ratio levels: over what the importance ratio pi_new / pi_old is formed.

A level maps log-ratios [K, B, L] and the mask of those that count to log-ratios of the same shape,
each entry the log of the ratio that multiplies its advantage.

    token      every value by itself
    sequence   the mean over a row's counted values in a pass (GSPO, arXiv 2507.18071), with the
               gradient of that mean at every entry
    none       no ratio: exp(new - stop_gradient(new)), so the policy gradient without correction
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor


def token(new: Tensor, old: Tensor, counts: Tensor) -> Tensor:
    """new - old, entry by entry."""
    return (new - old) * counts


def sequence(new: Tensor, old: Tensor, counts: Tensor) -> Tensor:
    """The mean of new - old over each row's counted entries, at every entry of the row."""
    number = counts.sum(-1, keepdim=True).clamp(min=1)
    mean = ((new - old) * counts).sum(-1, keepdim=True) / number
    return mean.expand_as(new) * counts


def none(new: Tensor, old: Tensor, counts: Tensor) -> Tensor:
    """0 in value with the gradient of new: REINFORCE."""
    return (new - new.detach()) * counts


RATIO_LEVELS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "token": token,
    "sequence": sequence,
    "none": none,
}
