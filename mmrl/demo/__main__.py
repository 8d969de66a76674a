"""A page in the browser: draw, write and ask step by step, and compare what runs recorded.

    python -m mmrl.demo
    python -m mmrl.demo runs="[runs/quickstart,runs/text_arithmetic]"
    python -m mmrl.demo checkpoints="[Gen-Verse/MMaDA-8B-MixCoT]" dtype=bfloat16

It reads run directories and checkpoints, trains nothing, and is served to this machine only. Needs
the extra `demo`.
"""

import sys
from collections.abc import Sequence

from mmrl.config import load_config
from mmrl.config.command import Usage, exit_status, run_command
from mmrl.demo.demo_config import DemoConfig

USAGE = Usage("python -m mmrl.demo", __doc__, DemoConfig)


def main(arguments: Sequence[str]) -> int:
    """Serve the page until Ctrl-C; return the exit status."""

    def work() -> None:
        config = load_config(DemoConfig, arguments)
        from mmrl.demo.page import serve

        serve(config)

    return run_command(USAGE, arguments, work) if arguments else exit_status(work)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
