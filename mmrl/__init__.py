"""Reinforcement learning of generative models: by masked tokens, by appended ones, by latents."""

import logging
import os
import signal
import sys
from pathlib import Path


def leave(*_: object) -> None:
    """Handle Ctrl-C during imports: end at once with status 130. Compiled modules swallow an
    exception while they are imported, or fail later because an import is missing."""
    os.write(2, b"stopped\n")
    os._exit(130)


def begin() -> None:
    """Make Ctrl-C an exception again; commands call this after their imports."""
    if signal.getsignal(signal.SIGINT) is leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def sees_accelerator() -> bool:
    """Whether torch will find a device besides the CPU, judged without importing it: by the
    variables that hide devices, else by the device files of NVIDIA, AMD, Ascend and WSL."""
    if os.environ.get("ACCELERATE_USE_CPU", "").lower() in ("1", "true"):
        return False
    names = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
    if chosen := [os.environ[name].strip() for name in names if name in os.environ]:
        return all(value not in ("", "-1", "NoDevFiles") for value in chosen)
    files = ("nvidia[0-9]*", "kfd", "davinci[0-9]*", "dxg")
    metal = sys.platform == "darwin" and os.uname().machine == "arm64"
    return metal or any(any(Path("/dev").glob(name)) for name in files)


# `python -m mmrl.…` imports for seconds before its work begins; until then argv[0] is -m
if sys.argv[:1] == ["-m"] and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, leave)
    # a scheduler may ask for a checkpoint before there is a step to save
    if signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL:
        signal.signal(signal.SIGUSR1, lambda *_: None)

# peft imports bitsandbytes, which complains of a package that only its kernels for CPUs are in
logging.getLogger("bitsandbytes.backends.cpu.ops").setLevel(logging.ERROR)

# What follows is read once, while torch is imported; workers inherit it.
# torch asks for huge pages from its first allocation on: on a CPU a step spends a tenth of its time
# in page faults without them. An accelerator does not care, and Linux alone knows of it.
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")

# Threads of OpenMP spin while they wait for each other, which stops a run where another process has
# one of their cores. libgomp reads the first variable, libomp and libiomp5 the second, and all of
# them the user's OMP_WAIT_POLICY.
if "OMP_WAIT_POLICY" not in os.environ and not sees_accelerator():
    os.environ.setdefault("GOMP_SPINCOUNT", "0")
    os.environ.setdefault("KMP_BLOCKTIME", "0")
