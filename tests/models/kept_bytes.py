"""What a forward pass keeps for the backward pass."""

from collections.abc import Callable

import torch
from torch import Tensor, nn


def count_kept(module: nn.Module, call: Callable[[], object]) -> int:
    """Bytes of the tensors that a call keeps, without the weights of the module."""
    kept = {}
    own = {weight.untyped_storage().data_ptr() for weight in module.parameters()}

    def note(tensor: Tensor) -> Tensor:
        place = tensor.untyped_storage()
        if place.data_ptr() not in own:
            kept[place.data_ptr()] = place.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        held = call()
    del held
    return sum(kept.values())
