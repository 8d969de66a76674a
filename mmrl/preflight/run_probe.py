"""The rewards of a run scored on recorded or dummy samples: `python -m mmrl.probe` and dry runs."""

import sys
from collections.abc import Iterator
from pathlib import Path

from mmrl import begin
from mmrl.config import ConfigError
from mmrl.preflight.probe_config import FEW, ProbeConfig
from mmrl.preflight.probe_samples import (
    ProbeSamples,
    find_recorded,
    make_dummy_samples,
    read_recorded,
)
from mmrl.preflight.reward_probe import Probe, format_probes, probe_rewards
from mmrl.preflight.run_checks import check_run
from mmrl.rl_config import RLConfig
from mmrl.rollouts.tasks import Task


def probe_task(
    config: RLConfig, task: Task, place: Path, count: int, dry: bool
) -> Iterator[tuple[str, list[Probe]]]:
    """Score samples with the rewards of a task and of its evaluations.

    Args:
        config: of the run.
        task: with its prompts.
        place: where recorded samples may be.
        count: how many are scored.
        dry: see `probe_rewards`; there are then fewer dummy samples.

    Yields:
        A title that names the rewards and the samples, and a probe of each reward.
    """
    options = task.config
    held_out = [] if options.eval_rewards else task.eval_prompts
    checked = {"rewards": [*task.prompts, *held_out], "eval_rewards": task.eval_prompts}
    for key, prompts in checked.items():
        entries, where = getattr(options, key), f"tasks.{task.name}.{key}"
        if not entries:
            continue
        samples = _recorded(task, place, count)
        if samples is None:
            few = min(count, FEW) if dry else count
            samples = make_dummy_samples(options.task, prompts, few, config.model.image_size)
        probes = probe_rewards(
            entries, where, options.task, prompts, samples, options.max_failures, dry
        )
        yield f"{where}, on {samples.source}", list(probes)


def _recorded(task: Task, place: Path, count: int) -> ProbeSamples | None:
    """Recorded samples of a task, if there are any of its prompts."""
    path = find_recorded(place, task.name)
    prompts = [*task.prompts, *task.eval_prompts]
    return None if path is None else read_recorded(path, prompts, count)


def probe_run(config: ProbeConfig) -> int:
    """Score samples with the rewards of a run and print their probes.

    Args:
        config: of the run, with `samples` and `num_samples`.

    Returns:
        1 where a reward can score nothing, otherwise 0.

    Raises:
        ConfigError, FileNotFoundError, ValueError: settings that cannot run.
    """
    begin()
    place, failed = Path(config.samples or config.output_dir), False
    tasks = list(check_run(config).values())
    if config.samples and not any(_recorded(task, place, config.num_samples) for task in tasks):
        names = " or ".join(task.name for task in tasks)
        raise ConfigError(
            f"samples is '{place}', which has no completion of a prompt of {names}. Name a run on"
            " the same prompts, or leave samples out."
        )
    for task in tasks:
        for title, probes in probe_task(config, task, place, config.num_samples, dry=False):
            lines = [title, *(f"  {line}" for line in format_probes(probes))]
            sys.stdout.write("\n".join(lines) + "\n")
            sys.stdout.flush()
            failed |= any(probe.failed for probe in probes)
    return int(failed)
