"""Settings of `python -m mmrl.eval` and `python -m mmrl.eval_v`, and the kinds of benchmarks."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, NamedTuple

from mmrl.config import (
    ConfigError,
    Settings,
    at_least,
    check,
    check_choice,
    filled,
    merge,
    one_of,
    read_key,
    to_plain,
)
from mmrl.config.chosen import keep_read
from mmrl.config.settings import load_ready
from mmrl.data.data_config import DataConfig
from mmrl.models.task_names import writes_images
from mmrl.pretrained.model_config import ModelConfig, check_image_guidance
from mmrl.rewards.scoring.terms import as_entry, check_entries
from mmrl.rollouts.diversity import check_metrics
from mmrl.runtime.devices import check_planned
from mmrl.samplers import SamplerConfig, check_sampler


class Benchmark(NamedTuple):
    """A kind of benchmark.

    `module`: its functions `plan` and `report`, see `mmrl.evaluation.text_benchmark`. `settings`:
    those of `EvalConfig` that not every kind reads.
    """

    module: str
    settings: tuple[str, ...]


_TEXT = Benchmark(
    "mmrl.evaluation.text_benchmark",
    ("num_samples", "max_completion_length", "assistant_prefill", "settings", "group_by"),
)
_IMAGES = Benchmark("mmrl.evaluation.image_benchmark", ("num_images_per_prompt", "geneval_dir"))
BENCHMARKS = {
    "text": _TEXT,
    "image_to_text": _TEXT,
    "text_to_image": _IMAGES,
    "image_edit": _IMAGES,
    "text_to_video": Benchmark("mmrl.evaluation.image_benchmark", ("num_images_per_prompt",)),
}
"""The kind of benchmark of each task."""
TEXT_TASKS = ("text", "image_to_text")
"""Tasks of `mmrl.eval`, its default first."""
VISION_TASKS = ("text_to_image", "image_edit", "image_to_text", "text_to_video")
"""Tasks of `mmrl.eval_v`, its default first."""


class SamplerRow(NamedTuple):
    """A sampler and the number of response positions; None for that of the task."""

    sampler: SamplerConfig
    length: int | None = None


@dataclass(kw_only=True)
class RowConfig(SamplerConfig):
    """A row of the table: a sampler, its length and its label."""

    CHOICES = SamplerConfig.CHOICES

    label: str = ""
    """Name of the row; empty names what differs."""
    max_completion_length: Annotated[int, at_least(1)] = 256
    """Response positions of a completion."""


@dataclass(kw_only=True)
class EvalConfig(Settings):
    """Settings of a benchmark."""

    output_dir: str = "runs/eval"
    """Where the results go. Run again with the same settings, it continues; settings that would
    change the samples are refused. Rewards may change: everything is scored again."""
    model: ModelConfig = field(default_factory=ModelConfig)
    """The policy."""
    device: str = "auto"
    """Where it runs; `auto` takes the GPU if there is one. Several processes need `auto`."""
    task: Annotated[str, one_of(BENCHMARKS)] = "text"
    """Layout the policy renders the prompts with. The default of `mmrl.eval_v` is text_to_image."""
    prompts: Annotated[str, filled("a prompt file or a hub id")] = ""
    """Prompt file or hub id."""
    data: DataConfig = field(default_factory=DataConfig)
    """How its rows are read."""
    limit: Annotated[int | None, at_least(1)] = None
    """At most this many prompts, taken at even distances; null takes all."""
    batch_size: Annotated[int, at_least(1)] = 64
    """Rows sampled at once; changes speed, memory and the NFE of rules that stop early."""
    sampler: SamplerConfig = field(default_factory=SamplerConfig)
    """The sampler."""
    rewards: list[dict[str, Any]] = field(
        default_factory=list, metadata={"holds": "mmrl.rewards:REWARDS"}
    )
    """What scores the completions: entries as in a task of `mmrl.rl`. Of texts, the first reward is
    the accuracy."""
    diversity: list[str] = field(default_factory=lambda: ["tokens"])
    """How the difference between the completions of a prompt is measured: names of
    `mmrl.rollouts.diversity`. Changing it samples nothing again."""
    max_failures: Annotated[float, at_least(0)] = 0.0
    """Failed scores allowed, see `mmrl.rewards.scoring.scorer`."""
    seed: int = 0
    """Seed of every draw."""
    dry_run: bool = False
    """Check everything, print the plan, and exit: 1 where the benchmark would be refused."""
    devices: str | None = None
    """Device that a dry run plans for, such as A100-80GB or 24GB; null plans for that of this
    machine."""
    verbose: bool = False
    """Print every setting below the plan."""
    num_samples: Annotated[int, at_least(1)] = 1
    """Completions per prompt, of texts: k of avg@k, and the largest k of pass@k."""
    max_completion_length: Annotated[int, at_least(1)] = 256
    """Response positions of a completion, of texts."""
    assistant_prefill: str = ""
    """Text that completions begin with, such as d1's `<reasoning>`, of texts: given at the end of
    the prompt; rewards see it as part of the completion."""
    settings: list[dict[str, Any]] = field(
        default_factory=list, metadata={"holds": "mmrl.evaluation.eval_config:RowConfig"}
    )
    """Rows of the table, of texts: each what differs from `sampler` and `max_completion_length`,
    and optionally a `label`; empty for one row."""
    group_by: list[str] | None = None
    """Metadata with a table per key, of texts, such as `[tag, form]`; null takes these two where
    prompts differ in them."""
    num_images_per_prompt: Annotated[int, at_least(1)] = 1
    """Images or videos per prompt."""
    geneval_dir: str | None = None
    """Also write the images in the folders that GenEval's evaluator reads."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.settle_rewards()
        for name in self._unread:
            value, default = getattr(self, name), getattr(type(self), name, [])
            allowed = f"left out with the task {self.task}, which does not read it"
            check(value == default, name, value, allowed)
        check(self.model.path != "", "model.path", self.model.path, "a directory or a hub id")
        check_planned(self)
        self._check_rewards()
        check_sampler(self.sampler)
        check_image_guidance(self.sampler.guidance.image, self.task, "sampler")
        self.rows()

    def _check_rewards(self) -> None:
        check_metrics(self.diversity, self.task, "diversity")
        if self.rewards:
            check_entries(self.rewards)
        elif not writes_images(self.task):
            raise ConfigError("rewards is empty; name one, such as {name: math}.")
        elif self.geneval_dir is None:
            advice = "name a reward, such as {name: clip}, or a folder for another program"
            raise ConfigError(f"rewards is empty and geneval_dir is null: {advice}.")

    def settle_rewards(self) -> None:
        """Turn callables among the rewards into entries, also those added after construction."""
        self.rewards = [as_entry(reward) for reward in self.rewards]

    @property
    def completions_per_prompt(self) -> int:
        """Number of samples of each prompt."""
        return self.num_images_per_prompt if writes_images(self.task) else self.num_samples

    @property
    def _unread(self) -> set[str]:
        """Settings that only other kinds of benchmarks read."""
        own = BENCHMARKS[self.task].settings
        return {name for each in BENCHMARKS.values() for name in each.settings} - {*own}

    def to_dict(self) -> dict[str, Any]:
        """The settings that this kind of benchmark reads, as plain containers."""
        return {key: value for key, value in to_plain(self).items() if key not in self._unread}

    def rows(self) -> dict[str, SamplerRow]:
        """Sampler and length of each row of the table, by label; for images there is one row.
        Raises ConfigError: a row that cannot be sampled, or two with one label."""
        if writes_images(self.task):
            return {self.sampler.name: SamplerRow(self.sampler)}
        rows: dict[str, SamplerRow] = {}
        for n, entry in enumerate(self.settings or [{}]):
            try:
                label, setting = self._row(entry)
                check(label not in rows, "label", label, "another than those of the rows above")
            except ConfigError as error:
                where = f"settings[{n}]: " if self.settings else ""
                raise ConfigError(f"{where}{error}") from error
            rows[label] = setting
        return rows

    def _row(self, entry: Mapping[str, Any]) -> tuple[str, SamplerRow]:
        base = {**asdict(self.sampler), "max_completion_length": self.max_completion_length}
        row = merge(RowConfig, keep_read(RowConfig, base, entry), entry)
        own = ("label", "max_completion_length")
        sampler = {key: value for key, value in asdict(row).items() if key not in own}
        setting = SamplerRow(SamplerConfig(**sampler), row.max_completion_length)
        check_sampler(setting.sampler, "sampler", setting.length)
        short = {"max_completion_length": "length"}
        differs = ", ".join(f"{short.get(key, key)} {value}" for key, value in entry.items())
        return row.label or differs or row.name, setting


def load_settings(arguments: Sequence[str], tasks: Sequence[str]) -> EvalConfig:
    """Settings from a command line and its YAML, of one of some tasks; the first is the default.
    Raises ConfigError: another task; see also `load_ready`."""
    task = read_key(arguments, "task")
    if task in BENCHMARKS and task not in tasks:
        command = "mmrl.eval" if task in TEXT_TASKS else "mmrl.eval_v"
        allowed = ", ".join(sorted(tasks))
        raise ConfigError(f"task is {task!r}; allowed: {allowed}. python -m {command} has it.")
    check_choice("task", task or tasks[0], tasks)
    return load_ready(EvalConfig, arguments if task else [*arguments, f"task={tasks[0]}"])
