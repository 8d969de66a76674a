"""Settings that benchmarks of images and of text share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from mmrl.config import check
from mmrl.data.data_config import DataConfig
from mmrl.model_config import ModelConfig, check_checkpoints, check_task
from mmrl.samplers import SamplerConfig, check_sampler
from mmrl.samplers.blocks import check_blocks
from mmrl.types import Prompt
from models.task_names import writes_images
from rewards.scoring.terms import as_entry, check_entries


class Setting(NamedTuple):
    """A sampler and the response positions it writes; None for those of the task."""

    sampler: SamplerConfig
    length: int | None = None


def check_setting(setting: Setting, where: str = "sampler") -> None:
    """Refuse what a benchmark cannot sample, before any model loads.

    Raises:
        ConfigError: see `check_sampler`; also draws over whole batches.
    """
    check_sampler(setting.sampler, where, setting.length)
    check(
        setting.sampler.rng == "compact",
        f"{where}.rng",
        setting.sampler.rng,
        "compact",
        "The draws of reference depend on the batch.",
    )


@dataclass(kw_only=True)
class BenchmarkConfig:
    """Settings of any benchmark."""

    output_dir: str = "runs/eval"
    """Where the results go. Run again with the same settings, it continues; with others that
    would change the samples it is refused. Rewards may change: everything is scored again."""
    model: ModelConfig = field(default_factory=ModelConfig)
    """The policy."""
    device: str = "auto"
    """Where it runs; `auto` takes the GPU if there is one. Several processes need `auto`."""
    task: str = "text"
    """Layout the policy renders the prompts with."""
    prompts: str = ""
    """Prompt file or hub id."""
    data: DataConfig = field(default_factory=DataConfig)
    """How its rows are read."""
    limit: int | None = None
    """At most this many prompts, taken at even distances; null takes all."""
    batch_size: int = 64
    """Rows sampled at once; changes speed, memory and the passes of rules that stop early."""
    sampler: SamplerConfig = field(default_factory=SamplerConfig)
    """The sampler."""
    rewards: list[dict[str, Any]] = field(
        default_factory=list, metadata={"holds": "rewards:REWARDS"}
    )
    """What scores the completions: entries as in a task of `mmrl.rl`."""
    max_failures: float = 0.0
    """Failed scores allowed, see `rewards.scoring.scorer`."""
    seed: int = 0
    """Names every draw."""
    dry_run: bool = False
    """Check everything, print the plan, and exit."""

    def __post_init__(self) -> None:
        self.settle_rewards()
        check(self.model.path != "", "model.path", self.model.path, "a directory or a hub id")
        check(self.prompts != "", "prompts", self.prompts, "a prompt file or a hub id")
        check(self.batch_size >= 1, "batch_size", self.batch_size, "at least 1")
        check(self.max_failures >= 0, "max_failures", self.max_failures, "0 or more")
        check_setting(Setting(self.sampler))
        if self.rewards:
            check_entries(self.rewards)

    def settle_rewards(self) -> None:
        """Make entries of callables that stand among the rewards, also of those put there later."""
        self.rewards = [as_entry(reward) for reward in self.rewards]

    def check_prompts(self, prompts: Sequence[Prompt]) -> None:
        """Raise a ConfigError where the prompts are not what the settings ask for."""

    def check_places(self) -> None:
        """Raise a ConfigError where output directory or model cannot be what they are to be."""
        from eval.asking import check_asking
        from mmrl.run.run_directory import check_writable

        self.settle_rewards()
        check_writable("output_dir", Path(self.output_dir))
        check_checkpoints(self.model)
        tokens = check_task(self.model, self.task, f"for the task {self.task}")
        check_asking(self.rewards, "rewards", self.model)
        if tokens is not None and writes_images(self.task):
            check_blocks(self.sampler, tokens)
