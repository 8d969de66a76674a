"""The environment of a run: versions, commit, machine and command line."""

import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

import torch

PACKAGES = ("torch", "transformers", "accelerate", "peft", "datasets", "safetensors", "omegaconf")


def environment_text(computation: Sequence[str] = ()) -> str:
    """Command line, commit, machine, how it computes (`computation`) and versions, in lines."""
    gpus = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    lines = [
        f"command: {' '.join(sys.argv)}",
        f"commit: {git_commit()}",
        f"python: {platform.python_version()} on {platform.platform()}",
        f"cpu threads: {torch.get_num_threads()} of {os.cpu_count()}",
        f"gpu: {', '.join(gpus) or 'none'}",
        *computation,
        *(f"{name}: {metadata.version(name)}" for name in PACKAGES),
    ]
    return "\n".join(lines) + "\n"


def git_commit() -> str:
    """Return the commit of the code, marked when files differ from it, or `unknown`."""
    git = ["git", "-C", str(Path(__file__).resolve().parents[2])]
    try:
        commit, changes = (
            subprocess.run([*git, *words], capture_output=True, text=True, timeout=10, check=True)
            for words in (["rev-parse", "HEAD"], ["status", "--porcelain"])
        )
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return commit.stdout.strip() + (" with local changes" if changes.stdout else "")
