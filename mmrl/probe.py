"""Score a few samples with the rewards of a run, without its policy.

    python -m mmrl.probe config=configs/rl/quickstart.yaml
    python -m mmrl.probe config=configs/rl/….yaml samples=runs/other num_samples=16

The exit status is 1 where a reward can score nothing.
"""

import sys
from collections.abc import Sequence

from mmrl.config.command import Usage, run_command
from mmrl.config.inputs import load_ready
from mmrl.preflight.probe_config import ProbeConfig

USAGE = Usage("python -m mmrl.probe", __doc__, ProbeConfig, "rl")


def main(arguments: Sequence[str]) -> int:
    """Run the command; return its exit status."""

    def work() -> int:
        config = load_ready(ProbeConfig, arguments)
        from mmrl.preflight.run_probe import probe_run

        return probe_run(config)

    return run_command(USAGE, arguments, work)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
