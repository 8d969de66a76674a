"""The rewards of a configuration tried on a handful of samples: `python -m rewards.probe`, and a
part of every dry run, in which nothing is downloaded and no server is asked to score."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from huggingface_hub import constants
from huggingface_hub.errors import LocalEntryNotFoundError, OfflineModeIsEnabled

from mmrl import begin
from mmrl.config import ConfigError, NotHereError
from mmrl.preflight.probe_config import FEW, ProbeConfig
from mmrl.preflight.probe_samples import Handful, find_recorded, recorded, stand_ins
from mmrl.rl_config import RLConfig
from mmrl.rollouts.tasks import Task, check_chunks
from mmrl.types import Prompt
from rewards import CutsCompletions, Served, in_step
from rewards.probe import Probed, table, tried
from rewards.scoring.scorer import check_prompts
from rewards.scoring.terms import build_term, key_of

if TYPE_CHECKING:
    from rewards.scoring.terms import Term


def probe(
    entries: Sequence[Mapping[str, Any]],
    where: str,
    task: str,
    prompts: Sequence[Prompt],
    handful: Handful,
    max_failures: float = 0.0,
    dry: bool = True,
) -> Iterator[Probed]:
    """Try rewards one after the other.

    Args:
        entries: of a configuration.
        where: their dotted key, for messages.
        task: layout of the prompts.
        prompts: all are checked.
        handful: what is scored.
        max_failures: above 0 prompts that cannot be scored are no error.
        dry: whether nothing is downloaded and a served reward is asked only whether it is there.

    Raises:
        FileNotFoundError, ValueError: a reward that can be built nowhere, or cannot score a prompt.
    """
    for n, entry in enumerate(entries):
        name = f"{entry.get('weight', 1):g} x {key_of(entry)}"
        try:
            with offline() if dry else nullcontext():
                term = build_term(entry, f"{where}[{n}]")
        except (NotHereError, LocalEntryNotFoundError, OfflineModeIsEnabled) as error:
            yield Probed(name, said=f"cannot run here: {error}", failed=True)
            continue
        cutting = term.reward.cutting if isinstance(term.reward, CutsCompletions) else None
        check_chunks(cutting, task, f"{where}[{n}]")
        check_prompts(term, prompts, max_failures)
        yield _untried(name, term, dry) or _tried(name, term, handful, cutting)


def _untried(name: str, term: Term, dry: bool) -> Probed | None:
    """Why a reward is not tried, if it is not."""
    if in_step(term.reward):
        return Probed(name, said="not tried: the loop calls it itself, beside the policy")
    problem = term.reward.ready() if isinstance(term.reward, Served) else ""
    if problem:
        return Probed(name, said=f"cannot run here: {problem}", failed=True)
    return Probed(name, said="ready") if dry and isinstance(term.reward, Served) else None


def _tried(name: str, term: Term, handful: Handful, cutting: Any) -> Probed:
    samples = handful.cut(cutting)
    if not samples:
        return Probed(name, said="ready, nothing to score")
    return tried(name, term, samples, handful.telling)


def probe_task(
    config: RLConfig, task: Task, place: Path, count: int, dry: bool
) -> Iterator[tuple[str, list[Probed]]]:
    """The rewards of a task and of its evaluations: what they are tried on, and how that went.

    Args:
        config: of the run.
        task: with its prompts.
        place: where recorded samples may be.
        count: how many are scored.
        dry: see `probe`; stand-ins are then fewer.
    """
    options = task.config
    held_out = [] if options.eval_rewards else task.eval_prompts
    checked = {"rewards": [*task.prompts, *held_out], "eval_rewards": task.eval_prompts}
    for key, prompts in checked.items():
        entries, where = getattr(options, key), f"tasks.{task.name}.{key}"
        if not entries:
            continue
        handful = _handful(task, place, count)
        if handful is None:
            few = min(count, FEW) if dry else count
            handful = stand_ins(options.task, prompts, few, config.model.image_size)
        rows = probe(entries, where, options.task, prompts, handful, options.max_failures, dry)
        yield f"{where}, on {handful.source}", list(rows)


def _handful(task: Task, place: Path, count: int) -> Handful | None:
    """Recorded samples of a task, if there are any of its prompts."""
    path = find_recorded(place, task.name)
    prompts = [*task.prompts, *task.eval_prompts]
    return None if path is None else recorded(path, prompts, count)


def probe_run(config: ProbeConfig) -> int:
    """Print what the rewards of a run make of samples.

    Args:
        config: of the run, with `samples` and `num_samples`.

    Returns:
        1 where a reward can score nothing, otherwise 0.

    Raises:
        ConfigError, FileNotFoundError, ValueError: settings that cannot run.
    """
    begin()
    place, failed = Path(config.samples or config.output_dir), False
    tasks = [Task(name, options) for name, options in config.tasks.items()]
    if config.samples and not any(_handful(task, place, config.num_samples) for task in tasks):
        names = " or ".join(task.name for task in tasks)
        raise ConfigError(
            f"samples is '{place}', which has no completion of a prompt of {names}. Take those of a"
            " run on the same prompts, or leave samples out."
        )
    for task in tasks:
        for title, rows in probe_task(config, task, place, config.num_samples, dry=False):
            sys.stdout.write("\n".join([title, *(f"  {line}" for line in table(rows))]) + "\n")
            sys.stdout.flush()
            failed |= any(row.failed for row in rows)
    return int(failed)


@contextmanager
def offline() -> Iterator[None]:
    """Nothing is downloaded meanwhile; what is cached is found."""
    before, constants.HF_HUB_OFFLINE = constants.HF_HUB_OFFLINE, True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before
