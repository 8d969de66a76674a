"""Reinforcement learning on masked-token models."""

import logging
import os
import signal
import sys


def leave(*_: object) -> None:
    """Handle Ctrl-C during imports: end at once with status 130.

    An exception is not enough: compiled modules swallow it while they are imported, or fail later
    because an import is missing.
    """
    os.write(2, b"stopped\n")
    os._exit(130)


def begin() -> None:
    """Make Ctrl-C an exception again; commands call this after their imports."""
    if signal.getsignal(signal.SIGINT) is leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)


# `python -m mmrl.…` imports for seconds before its work begins; until then argv[0] is -m
if sys.argv[:1] == ["-m"] and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, leave)
    # a scheduler may ask for a checkpoint before there is a step to save
    if signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL:
        signal.signal(signal.SIGUSR1, lambda *_: None)

# peft imports bitsandbytes, which complains of a package that only its kernels for CPUs are in
logging.getLogger("bitsandbytes.backends.cpu.ops").setLevel(logging.ERROR)

# torch asks for huge pages from its first allocation on: on a CPU a step spends a tenth of its time
# in page faults without them. An accelerator does not care, and Linux alone knows of it.
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
