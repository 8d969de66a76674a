"""torch.compile for the repeated blocks of a network."""

import os
import shutil

import torch
from torch import nn

from mmrl.config import check


def check_compiler(torch_compile: bool) -> None:
    """Raise a ConfigError for `torch_compile=true` on a CPU without a C++ compiler."""
    if torch_compile and not torch.accelerator.is_available():
        names = (os.environ.get("CXX", "g++"), "clang++")
        allowed = f"true where a C++ compiler is installed ({' or '.join(names)}), or false"
        check(any(map(shutil.which, names)), "torch_compile", True, allowed)


def compile_blocks(network: nn.Module, backend: str = "inductor") -> None:
    """Compile every repeated block in place, for all lengths at once; names of tensors stay.

    Blocks rather than the whole network: one short compilation serves all layers, and code that
    depends on data, such as the choice of positions, is not compiled.
    """
    for module in network.modules():
        if isinstance(module, nn.ModuleList):
            for block in module:
                block.compile(backend=backend, dynamic=True)
