"""Reinforcement learning on masked-token models."""

import os
import signal
import sys


def leave(*_: object) -> None:
    """Handle Ctrl-C while nothing but imports has happened: say so and end, with status 130.

    An exception would not do: compiled modules in the middle of their import swallow it, or fail
    later for want of what was not imported.
    """
    os.write(2, b"stopped\n")
    os._exit(130)


def begin() -> None:
    """Let Ctrl-C be an exception from here on: what a command needs is imported."""
    if signal.getsignal(signal.SIGINT) is leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)


# `python -m mmrl.…` imports for seconds before its work begins; at first -m stands there
if sys.argv[:1] == ["-m"] and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, leave)
