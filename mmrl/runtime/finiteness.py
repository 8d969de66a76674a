"""Infinite numbers and NaNs, found before they are saved."""

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from mmrl.runtime.failures import DivergenceError
from mmrl.runtime.launch import any_process


def check_finite(step: int, named: Iterable[tuple[str, Tensor]]) -> None:
    """Raise for tensors that have diverged; all processes call this before they save.

    Gradients are checked before they are applied, but the step itself may be too long.

    Args:
        step: the last optimiser step.
        named: names and tensors.

    Raises:
        DivergenceError: a tensor has an infinite number or a NaN, on any process.
    """
    bad = next((name for name, tensor in named if not _is_finite(tensor)), "")
    if any_process(bool(bad)):
        raise DivergenceError(
            f"after step {step} {bad or 'a tensor of another process'} is no longer finite, and"
            " nothing of it is saved. Lower learning_rate or weight_decay, and resume from the last"
            " checkpoint."
        )


def list_moments(optimizer: Optimizer) -> Iterator[tuple[str, Tensor]]:
    """The state tensors of an optimiser, with names."""
    for state in optimizer.state.values():
        for name, value in state.items():
            if isinstance(value, Tensor):
                yield f"{name} of the optimiser", value


def _is_finite(tensor: Tensor) -> bool:
    local = tensor.to_local() if isinstance(tensor, DTensor) else tensor
    return not local.is_floating_point() or bool(torch.isfinite(local).all())
