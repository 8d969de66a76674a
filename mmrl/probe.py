"""Score a few samples with the rewards of a run, without its policy.

    python -m mmrl.probe config=configs/rl/quickstart.yaml
    python -m mmrl.probe config=configs/rl/….yaml num_samples=16

The exit status is 1 where a reward can score nothing.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from mmrl import begin
from mmrl.config import at_least
from mmrl.config.command import Usage, run_command, write_out
from mmrl.config.settings import load_ready
from mmrl.rl_config import RLConfig


@dataclass(kw_only=True)
class ProbeConfig(RLConfig):
    """The settings of a run and of its probe."""

    num_samples: Annotated[int, at_least(2)] = 8
    """Dummy samples that each reward scores: blank or noisy images, texts with and without the
    answers of the data."""


USAGE = Usage("python -m mmrl.probe", __doc__, ProbeConfig, "rl")


def probe_run(config: ProbeConfig) -> int:
    """Score samples with the rewards of a run and print what was found out; return 1 where a reward
    can score nothing, otherwise 0. Raises ConfigError, FileNotFoundError, ValueError: settings that
    cannot run."""
    from mmrl.planning.reward_probe import probe_task
    from mmrl.planning.run_checks import check_run

    begin()
    failed = False
    for task in check_run(config).values():
        for title, probes in probe_task(config, task, config.num_samples, dry=False):
            lines = [title, *(f"  {line}" for probe in probes for line in probe.lines())]
            write_out("\n".join(lines) + "\n")
            failed |= any(probe.failed for probe in probes)
    return int(failed)


def main(arguments: Sequence[str]) -> int:
    """Run the command; return its exit status."""
    return run_command(USAGE, arguments, lambda: probe_run(load_ready(ProbeConfig, arguments)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
