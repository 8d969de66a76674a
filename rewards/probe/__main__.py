"""Try the rewards of a run on a handful of samples, without its policy.

    python -m rewards.probe config=configs/rl/….yaml key=value …
    python -m rewards.probe config=configs/rl/….yaml samples=runs/other num_samples=16

Exit status 1 where a reward can score nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from mmrl.command import exit_status
from mmrl.probe import probe_run


def main(arguments: Sequence[str]) -> int:
    """Run the command; return its exit status."""
    return exit_status(lambda: probe_run(arguments))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
