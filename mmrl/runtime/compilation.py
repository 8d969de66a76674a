"""torch.compile for the repeated blocks of a network.

`auto` compiles nothing. On one core of a Xeon, steps of configs/rl/shapes_t2i.yaml became a tenth
faster in bfloat16 with AVX-512 and a fifth slower in float32 with AVX2, and the first step took up
to 50 seconds longer; in float32 with AVX-512 compiled code aborted the process (torch 2.14). GPUs
were not measured.
"""

import os
import shutil
from typing import Literal

import torch
from torch import nn

from mmrl.config import check


def choose_compilation(
    wish: Literal["auto", True, False], device: torch.device
) -> tuple[bool, str]:
    """Whether blocks are compiled, and the reason.

    Raises:
        ConfigError: the setting is neither `auto` nor true or false.
    """
    check(wish in ("auto", True, False), "torch_compile", wish, "auto, true or false")
    if wish != "auto":
        return wish, "as set"
    cpu = device.type == "cpu"
    return False, "it saves little or nothing on a CPU" if cpu else "its gain is not known here"


def check_compiler(torch_compile: Literal["auto", True, False]) -> None:
    """Raise a ConfigError for `torch_compile=true` on a CPU without a C++ compiler."""
    if torch_compile is True and not torch.accelerator.is_available():
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
