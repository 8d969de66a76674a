"""Estimators of KL(policy || reference) from log-probs of sampled tokens (Schulman 2020).

With d = reference - policy:  k1 = -d,  k2 = d^2 / 2,  k3 = exp(d) - d - 1.
k1 is unbiased in value but its plain gradient has mean zero; k2 has the gradient of the KL; k3 is
never negative and is what GRPO uses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def k1(policy: Tensor, reference: Tensor) -> Tensor:
    """policy - reference."""
    return policy - reference


def k2(policy: Tensor, reference: Tensor) -> Tensor:
    """(policy - reference)^2 / 2."""
    return (policy - reference).square() / 2


def k3(policy: Tensor, reference: Tensor) -> Tensor:
    """exp(reference - policy) - (reference - policy) - 1."""
    difference = reference - policy
    return difference.exp() - difference - 1


KL: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"k1": k1, "k2": k2, "k3": k3}
