"""The list of commands: `python -m mmrl`."""

import sys
from collections.abc import Sequence
from pathlib import Path

from mmrl.config.command import HELP, write_out
from mmrl.config.help import commands


def main(arguments: Sequence[str]) -> int:
    """List the commands; return the exit status."""
    write_out(commands(Path(__file__).resolve().parents[1]))
    return 0 if set(arguments) <= set(HELP) else 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
