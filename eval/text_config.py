"""Settings of `python -m mmrl.eval`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from eval.benchmark_config import BenchmarkConfig, Setting, check_setting
from eval.groups import sizes
from mmrl.config import ConfigError, check, check_choice, merge
from mmrl.samplers import SamplerConfig
from mmrl.types import Prompt
from models.task_names import TASKS, writes_images

_SHORT = {"max_completion_length": "length"}


@dataclass(kw_only=True)
class EvalConfig(BenchmarkConfig):
    """Settings of a text benchmark. The first reward gives the accuracy."""

    num_samples: int = 1
    """Completions per prompt: k of avg@k, and the largest k of pass@k."""
    max_completion_length: int = 256
    """Response positions of a completion."""
    settings: list[dict[str, Any]] = field(
        default_factory=list, metadata={"holds": "eval.text_config:RowConfig"}
    )
    """Rows of the table, each what differs from `sampler` and `max_completion_length`, and if
    wanted a `label`; empty for one row."""
    group_by: list[str] | None = None
    """Metadata whose values get tables of their own, such as `[tag, form]`; null takes these two
    where prompts differ in them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self.num_samples >= 1, "num_samples", self.num_samples, "at least 1")
        if not self.rewards:
            raise ConfigError("rewards is empty; name one, such as {name: math}.")
        check_choice("task", self.task, [task for task in TASKS if not writes_images(task)])
        self.rows()

    def check_prompts(self, prompts: Sequence[Prompt]) -> None:
        """Raise a ConfigError where no prompt has what they are grouped by."""
        sizes(prompts, self.group_by)

    def rows(self) -> dict[str, Setting]:
        """Sampler and length of each row, by label.

        Raises:
            ConfigError: a row that cannot be sampled, or two with one label.
        """
        rows: dict[str, Setting] = {}
        for n, entry in enumerate(self.settings or [{}]):
            try:
                label, setting = self._row(entry)
                check(label not in rows, "label", label, "another than those of the rows above")
            except ConfigError as error:
                raise ConfigError(
                    f"settings[{n}]: {error}" if self.settings else f"{error}"
                ) from error
            rows[label] = setting
        return rows

    def _row(self, entry: Mapping[str, Any]) -> tuple[str, Setting]:
        base = {**asdict(self.sampler), "max_completion_length": self.max_completion_length}
        row = merge(RowConfig, base, entry)
        named = ", ".join(f"{_SHORT.get(key, key)} {value}" for key, value in entry.items())
        setting = Setting(row.sampler(), row.max_completion_length)
        check_setting(setting)
        return row.label or named or row.name, setting


@dataclass(kw_only=True)
class RowConfig(SamplerConfig):
    """A sampler with its length and its name in the table."""

    label: str = ""
    """Name of the row; empty names what differs."""
    max_completion_length: int = 256
    """Response positions of a completion."""

    def __post_init__(self) -> None:
        super().__post_init__()
        length = self.max_completion_length
        check(length >= 1, "max_completion_length", length, "at least 1")

    def sampler(self) -> SamplerConfig:
        """The sampler alone."""
        own = {"label", "max_completion_length"}
        return SamplerConfig(**{k: v for k, v in asdict(self).items() if k not in own})
