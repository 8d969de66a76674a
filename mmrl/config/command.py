"""What every entry point does around its work: help, the exit status, one line for an error."""

from __future__ import annotations

import gc
import logging
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from mmrl.config.help import Usage, texts
from mmrl.config.settings import load_config

__all__ = ["Usage", "exit_status", "read_settings", "run_command"]

logger = logging.getLogger(__name__)
HELP = ("-h", "--help")


def run_command(
    usage: Usage,
    arguments: Sequence[str],
    work: Callable[[], int | None],
    *errors: type[Exception],
) -> int:
    """Do the work of a command, or say how it is used; return its exit status.

    Args:
        usage: what is said for `-h`, `--help`, `--help KEY` and without arguments, which is
            status 2.
        arguments: of the command line.
        work: see `exit_status`, as `errors`.
    """
    if arguments and not any(word in HELP for word in arguments):
        return exit_status(work, *errors)
    keys = [word for word in arguments if word not in HELP and "=" not in word]
    found = list(texts(usage, keys))
    write_out("\n".join(text for text, _ in found))
    if not all(known for _, known in found):
        return 1
    return 0 if arguments else 2


def read_settings(usage: Usage, arguments: Sequence[str]) -> Any:
    """Settings of a command line; ends the process where it asks for help or cannot be right.

    For scripts that import for seconds: they read their settings first.
    """
    found = []

    def work() -> None:
        assert isinstance(usage.config, type)
        found.append(load_config(usage.config, arguments))

    status = run_command(usage, arguments, work)
    if not found:
        sys.exit(status)
    return found[0]


def write_out(text: str) -> None:
    """Print a text; a reader that closes the pipe early, such as `head`, is no error."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def exit_status(work: Callable[[], int | None], *errors: type[Exception]) -> int:
    """Do the work of a command; return its exit status.

    Args:
        work: returns the status, or None for 0.
        errors: besides ValueError (which ConfigError is) and OSError, what is the user's to
            correct: it becomes one line on stderr and status 1. Ctrl-C is status 130; anything
            else is a defect and keeps its traceback.
    """
    try:
        return work() or 0
    except (ValueError, OSError, *errors) as error:
        logger.debug("the command ended with", exc_info=True)
        sys.stderr.write(f"error: {error}\n")
        return 1
    except KeyboardInterrupt:
        gc.freeze()  # or Python's last collection takes a second among the modules of torch
        sys.stderr.write("stopped\n")
        return 130
