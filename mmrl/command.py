"""What every entry point does around its work: the exit status, and one line for an error."""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import Callable

from mmrl import leave

logger = logging.getLogger(__name__)


def exit_status(work: Callable[[], int | None], *errors: type[Exception]) -> int:
    """Do the work of a command; return its exit status.

    Args:
        work: returns the status, or None for 0.
        errors: besides ValueError (which ConfigError is) and OSError, what is the user's to
            correct: it becomes one line on stderr and status 1. Ctrl-C is status 130; anything
            else is a defect and keeps its traceback.
    """
    if signal.getsignal(signal.SIGINT) is leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return work() or 0
    except (ValueError, OSError, *errors) as error:
        logger.debug("the command ended with", exc_info=True)
        sys.stderr.write(f"error: {error}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("stopped\n")
        return 130
