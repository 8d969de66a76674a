"""Score a few samples with the rewards of a run, without its policy.

    python -m mmrl.probe config=configs/rl/quickstart.yaml
    python -m mmrl.probe config=configs/rl/….yaml samples=runs/other num_samples=16

The exit status is 1 where a reward can score nothing.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from mmrl import begin
from mmrl.config import ConfigError, at_least, check
from mmrl.config.command import Usage, run_command
from mmrl.config.inputs import load_ready
from mmrl.rl_config import RLConfig


@dataclass(kw_only=True)
class ProbeConfig(RLConfig):
    """The settings of a run and of its probe."""

    samples: str | None = None
    """Recorded completions: a run directory or a parquet of its `samples/`; null takes those in
    `output_dir`, and dummy samples where there are none."""
    num_samples: Annotated[int, at_least(2)] = 8
    """Samples each reward scores."""

    def __post_init__(self) -> None:
        super().__post_init__()
        found = self.samples is None or Path(self.samples).exists()
        check(found, "samples", self.samples, "a run directory or a parquet of completions")


USAGE = Usage("python -m mmrl.probe", __doc__, ProbeConfig, "rl")


def probe_run(config: ProbeConfig) -> int:
    """Score samples with the rewards of a run and print what was found out.

    Args:
        config: of the run, with `samples` and `num_samples`.

    Returns:
        1 where a reward can score nothing, otherwise 0.

    Raises:
        ConfigError, FileNotFoundError, ValueError: settings that cannot run.
    """
    from mmrl.planning.reward_probe import find_samples_of, probe_task
    from mmrl.planning.run_checks import check_run

    begin()
    place, count, failed = Path(config.samples or config.output_dir), config.num_samples, False
    tasks = list(check_run(config).values())
    if config.samples and not any(find_samples_of(task, place, count) for task in tasks):
        names = " or ".join(task.name for task in tasks)
        raise ConfigError(
            f"samples is '{place}', which has no completion of a prompt of {names}. Name a run on"
            " the same prompts, or leave samples out."
        )
    for task in tasks:
        for title, probes in probe_task(config, task, place, count, dry=False):
            lines = [title, *(f"  {line}" for probe in probes for line in probe.lines())]
            sys.stdout.write("\n".join(lines) + "\n")
            sys.stdout.flush()
            failed |= any(probe.failed for probe in probes)
    return int(failed)


def main(arguments: Sequence[str]) -> int:
    """Run the command; return its exit status."""
    return run_command(USAGE, arguments, lambda: probe_run(load_ready(ProbeConfig, arguments)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
