"""Where the network of a reward runs."""

from __future__ import annotations

import torch


def resolve_device(device: str) -> torch.device:
    """A torch device by its name; for "auto" the current CUDA device if there is one."""
    if device != "auto":
        return torch.device(device)
    if torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")
