"""The frame of every command: help, the exit status, one line for an error of the user."""

import gc
import logging
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from mmrl.config.help import Usage, texts
from mmrl.config.settings import load_config

logger = logging.getLogger(__name__)
HELP = ("-h", "--help")


def run_command(
    usage: Usage, arguments: Sequence[str], work: Callable[[], int | None], *errors: type[Exception]
) -> int:
    """Do the work of a command, see `exit_status`, or print its help for `-h`, `--help`, `--help
    KEY` and, with status 2, without arguments; return its exit status."""
    if arguments and not any(word in HELP for word in arguments):
        return exit_status(work, *errors)
    keys = [word for word in arguments if word not in HELP and "=" not in word]
    found = list(texts(usage, keys))
    write_out("\n".join(text for text, _ in found))
    if not all(known for _, known in found):
        return 1
    return 0 if arguments else 2


def read_settings(usage: Usage, arguments: Sequence[str]) -> Any:
    """Read the settings of a command line, before imports that are slow; exit where it asks for
    help or has an error."""
    found, config = [], usage.config
    status = run_command(usage, arguments, lambda: found.append(load_config(config, arguments)))
    return found[0] if found else sys.exit(status)


def write_out(text: str) -> None:
    """Print a text; a reader that closes the pipe early, such as `head`, is not an error."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def exit_status(work: Callable[[], int | None], *errors: type[Exception]) -> int:
    """Do the work of a command, which returns the status or None for 0; return its exit status.

    Errors of the user, which are ValueError (so ConfigError too), OSError and `errors`, become one
    line on stderr and status 1. Ctrl-C is status 130, and a KeyboardInterrupt with a `status` has
    that; any other error is a defect and keeps its traceback."""
    try:
        return work() or 0
    except (ValueError, OSError, *errors) as error:
        logger.debug("the command ended with", exc_info=True)
        sys.stderr.write(f"error: {error}\n")
        return 1
    except KeyboardInterrupt as stop:
        gc.freeze()  # Python's last collection would take a second with torch imported
        sys.stderr.write(f"{str(stop) or 'stopped'}\n")
        return getattr(stop, "status", 130)
