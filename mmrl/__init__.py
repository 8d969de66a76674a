"""Reinforcement learning on masked-token models."""

import signal
import sys
from types import TracebackType


def _stopped(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        sys.stderr.write("stopped\n")
    else:
        sys.__excepthook__(kind, error, trace)


# `python -m mmrl.…` imports for seconds before main can catch Ctrl-C; until then -m stands there
if sys.argv[:1] == ["-m"] and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    sys.excepthook = _stopped
