"""Kernels that give equal bits in every run."""

import os

import torch


def choose_deterministic_kernels() -> None:
    """Take deterministic kernels in this process from now on; before CUDA is first used.

    cuBLAS is deterministic with a workspace of fixed size, which it reads when it starts. Kernels
    without a deterministic form run as before, and torch warns of each: `cumsum` of floats on CUDA,
    by which tokens are drawn, is one.
    """
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.benchmark = False
