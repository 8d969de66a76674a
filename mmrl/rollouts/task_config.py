"""Settings of one task of a run: its prompts, sampler, rewards and algorithm."""

from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from mmrl.algorithms import AlgorithmConfig, load_algorithm
from mmrl.algorithms.advantages import OF_GROUP
from mmrl.config import Settings, at_least, check, check_choice, one_of
from mmrl.data.data_config import DataConfig
from mmrl.generation.causal.engine_config import EngineConfig
from mmrl.generation.kinds import SAMPLERS
from mmrl.models.task_names import TASKS, completions_of, writes_images
from mmrl.pretrained.model_config import check_image_guidance
from mmrl.rewards.scoring.terms import as_entry, check_entries, check_gradients, key_of
from mmrl.rollouts.diversity import check_metrics
from mmrl.rollouts.pairing import check_pairing
from mmrl.samplers import SamplerConfig, check_sampler

MOST_ROLLOUTS = 65536
"""Maximum of prompts of a step, and of completions of a prompt."""
TEXT_ONLY = {
    **dict.fromkeys(("assistant_prefill", "eval_assistant_prefill"), "empty"),
    **dict.fromkeys(("mask_truncated_completions", "strict_len_check"), "false"),
    "soft_punish_cache": "null",
}
"""Settings that only texts have, and what they are for images."""


@dataclass(kw_only=True)
class ChainConfig(Settings):
    """How a task follows the one whose completions are its prompts, see
    `mmrl.rollouts.chain_order`."""

    where: ClassVar[str] = "chain"

    marker: str = ""
    """What is before the prompt in a completion, such as UniRL's `Revised Prompt:`; without it
    in a completion, or empty, all of the completion is the prompt. An empty prompt falls back to
    the original one, and is counted."""
    reward_prompt: Literal["original", "rewritten"] = "original"
    """The text that rewards see."""
    reward: Literal["mean", "max", "sum", "none"] = "mean"
    """Which of the rewards of its rollouts is a reward of the completion that they came from."""
    weight: Annotated[float, at_least(0)] = 1.0
    """Weight of that reward beside the other's own."""


@dataclass(kw_only=True)
class TaskConfig(Settings):
    """Settings of one task."""

    task: Annotated[str, one_of(TASKS)] = "text_to_image"
    """Layout the policy renders the prompts with."""
    policy: str = ""
    """Which of `models` writes the completions; empty for a single one."""
    prompts: str = ""
    """Training prompts: a JSONL, JSON, CSV, TSV, parquet or text file, or a hub id; `tasks.<name>`
    for the completions of another task, see `mmrl.rollouts.chain_order`."""
    chain: ChainConfig = field(default_factory=ChainConfig)
    """How it follows that other task."""
    eval_prompts: str = ""
    """Held-out prompts; empty for no evaluation."""
    data: DataConfig = field(default_factory=DataConfig)
    """How the rows of `prompts` are read and worded."""
    eval_data: dict[str, Any] = field(
        default_factory=dict, metadata={"holds": "mmrl.data.data_config:DataConfig"}
    )
    """Settings of `data` that differ for `eval_prompts`, such as its split."""
    num_prompts: Annotated[int, at_least(1, up_to=MOST_ROLLOUTS)] = 8
    """Prompts per step, over all processes."""
    num_generations: Annotated[int, at_least(1, up_to=MOST_ROLLOUTS)] = 8
    """Rollouts per prompt: the size of a group. A single one needs a baseline that is not of the
    group."""
    rollout_batch_size: Annotated[int | str, at_least(1, or_word="auto")] = 64
    """Rollouts sampled at once on a device; changes speed and memory only. Best a multiple of the
    group: a batch with part of one group has no other group. With SDAR's exact cache and `eos:
    stop` a rollout that ends gives its place to the next. `auto` takes the largest that fits the
    memory, see `mmrl.planning.batch_sizes`."""
    max_completion_length: Annotated[int | None, at_least(1)] = None
    """Response positions of a text; null for images, and for the policy's own number."""
    eval_max_completion_length: Annotated[int | None, at_least(1)] = None
    """Response positions in evaluations; null takes `max_completion_length`."""
    assistant_prefill: str = ""
    """Text that completions begin with, such as d1's `<reasoning>`: given at the end of the prompt
    and never sampled or trained on; rewards see it as part of the completion."""
    eval_assistant_prefill: str | None = None
    """The same in evaluations; null takes `assistant_prefill`."""
    sampler: SamplerConfig = field(default_factory=SamplerConfig)
    """How rollouts are written."""
    sample_with: Literal["policy", "old"] = "policy"
    """What rollouts are written by: the policy, or the run's `old_policy`."""
    eval_sampler: SamplerConfig | None = None
    """Sampler of evaluations; null takes `sampler`."""
    eval_limit: Annotated[int | None, at_least(1)] = None
    """At most this many held-out prompts, spread over the file; null takes all."""
    rewards: list[dict[str, Any]] = field(
        default_factory=list, metadata={"holds": "mmrl.rewards:REWARDS"}
    )
    """Terms of the reward: name, weight, scale, offset and the reward's own options; on videos the
    `frames` that one of images scores: first, last, middle or mean (the mean score of all). A name
    is one of `mmrl.rewards.REWARDS`, or path/to/file.py:function; from Python also a callable."""
    eval_rewards: list[dict[str, Any]] = field(
        default_factory=list, metadata={"holds": "mmrl.rewards:REWARDS"}
    )
    """Rewards of evaluations; empty takes `rewards`."""
    diversity: list[str] = field(default_factory=lambda: ["tokens"])
    """How the difference between the rollouts of a prompt is measured, for the metrics: names of
    `mmrl.rollouts.diversity`; empty measures nothing."""
    max_failures: Annotated[float, at_least(0)] = 0.0
    """Failed scores allowed: below 1 a share of a process's samples of a step, otherwise a number
    per run."""
    algorithm: dict[str, Any] = field(
        default_factory=dict, metadata={"holds": "mmrl.algorithms:AlgorithmConfig"}
    )
    """Preset and columns that differ from it, see `mmrl.algorithms`. `config.yaml` of a run holds
    every column; a resumed run starts from those, not from the preset of the same name."""
    weight: Annotated[float, at_least(0)] = 1.0
    """Weight of this task's loss."""
    skip_zero_std_groups: bool = False
    """Leave groups whose rewards are all equal out of the update, out of its means and its KL."""
    max_num_gen_batches: Annotated[int, at_least(1)] = 1
    """At most this many times the groups that are left out are sampled again with further prompts
    (dynamic sampling, with verl's name), see `mmrl.rollouts.dynamic_sampling`; 1 samples none."""
    mask_truncated_completions: bool = False
    """Leave texts without an end out of the update; groups are still compared with them."""
    soft_punish_cache: Annotated[int | None, at_least(1)] = None
    """Last tokens of `max_completion_length` in which the reward of a text falls by up to 1, see
    `mmrl.rollouts.overlong`; null for none."""
    accuracy_band: list[float] | None = None
    """Lowest and highest accuracy, [0.05, 0.95] in dLLM-RL's vision runs: groups below or above are
    left out of the update, out of its means and its KL. Null leaves none out."""
    accuracy_rewards: list[str] = field(default_factory=list)
    """Keys of the rewards whose raw score, 1 or 0, says that a completion is correct; of several
    any. Empty takes the only reward."""
    strict_len_check: bool = False
    """Count completions as wrong that end fewer than 6 tokens below `max_completion_length`: the
    `accuracy_rewards` score them 0. dLLM-RL always does so for texts without images."""
    shuffle_advantages: bool = False
    """Control run that must not learn: advantages are shuffled among the rollouts of a step."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.settle_rewards()
        band, allowed = self.accuracy_band, "null or [lowest, highest], from 0 to 1"
        fits = band is None or (len(band) == 2 and 0 <= band[0] <= band[1] <= 1)
        check(fits, "accuracy_band", band, allowed)

    def check(self, where: str) -> None:
        """Check names and options of the task at the dotted key `where`, and whether they fit
        together; nothing is loaded. Raises ConfigError, ValueError: an impossible sampler, method
        or reward."""
        self.settle_rewards()
        length = self.max_completion_length
        check_sampler(self.sampler, f"{where}.sampler", length)
        evaluation = self.eval_sampler or self.sampler
        eval_length = self.eval_max_completion_length or length
        check_sampler(evaluation, f"{where}.eval_sampler", eval_length)
        algorithm = load_algorithm(self.algorithm, f"{where}.algorithm")
        check_pairing(algorithm, self.sampler, where)
        fits = self.sample_with == "policy" or not algorithm.has_ratio
        allowed = "policy, as algorithm.contrast is none: ratios are to the policy that sampled"
        check(fits, f"{where}.sample_with", self.sample_with, allowed)
        fits = self.sample_with == "policy" or SAMPLERS[self.sampler.name].prepare is None
        allowed = "policy, as an engine has its weights"
        check(fits, f"{where}.sample_with", self.sample_with, allowed)
        self._check_groups(algorithm, where)
        self._check_further(algorithm, where)
        self._check_lengths(where)
        for key in ("rewards", "eval_rewards"):
            if getattr(self, key):
                check_entries(getattr(self, key), f"{where}.{key}")
        if algorithm.follows_rewards:
            why = f"as strategy: {algorithm.strategy} follows it"
            check_gradients(self.rewards, f"{where}.rewards", why)
        check_metrics(self.diversity, self.task, f"{where}.diversity")
        for key, absent in TEXT_ONLY.items() if writes_images(self.task) else ():
            value = getattr(self, key)
            allowed = f"{absent}, {self.task} makes {completions_of(self.task)}"
            check(not value, f"{where}.{key}", value, allowed)
        for key, guided in (
            ("sampler", self.sampler),
            ("eval_sampler", evaluation),
            ("algorithm", algorithm),
        ):
            check_image_guidance(guided.guidance.image, self.task, f"{where}.{key}")
        self._check_accuracy(where)

    @property
    def rollouts_at_once(self) -> int:
        """`rollout_batch_size` where `auto` is settled."""
        return int(self.rollout_batch_size)

    @property
    def engine(self) -> EngineConfig | None:
        """The engine that writes the rollouts; None where the policy does."""
        sampler: Any = self.sampler
        return sampler if isinstance(sampler, EngineConfig) else None

    @property
    def engines(self) -> list[EngineConfig]:
        """Engines of rollouts and evaluations."""
        both: list[Any] = [self.sampler, self.eval_sampler]
        return [each for each in both if isinstance(each, EngineConfig)]

    @property
    def accuracy_keys(self) -> list[str]:
        """Keys of the rewards that measure accuracy."""
        return self.accuracy_rewards or [key_of(entry) for entry in self.rewards]

    def _check_groups(self, method: AlgorithmConfig, where: str) -> None:
        grouped = method.baseline in OF_GROUP or method.scale_rewards not in ("batch", "none")
        allowed = "at least 2, as the advantage compares the rollouts of a prompt"
        advice = "Or use algorithm.baseline: batch with algorithm.scale_rewards: batch."
        fits = self.num_generations > 1 or not grouped
        check(fits, f"{where}.num_generations", self.num_generations, allowed, advice)

    def _check_further(self, method: AlgorithmConfig, where: str) -> None:
        number, key = self.max_num_gen_batches, f"{where}.max_num_gen_batches"
        filters = self.skip_zero_std_groups or self.accuracy_band is not None
        advice = "Set skip_zero_std_groups: true, or accuracy_band."
        check(number == 1 or filters, key, number, "1 where no group is left out", advice)
        alone = method.baseline in OF_GROUP and method.scale_rewards != "batch"
        alone = alone and method.value is None and method.completion_value is None
        allowed = "1 where advantages are of more than a group (baseline, scale_rewards, value)"
        check(number == 1 or alone, key, number, allowed)

    def _check_lengths(self, where: str) -> None:
        cache, longest = self.soft_punish_cache, self.max_completion_length
        fits = cache is None or (longest is not None and cache <= longest)
        allowed = "null, or at most max_completion_length, which is set"
        check(fits, f"{where}.soft_punish_cache", cache, allowed)

    def _check_accuracy(self, where: str) -> None:
        if self.accuracy_band is None and not self.strict_len_check:
            return
        known = [key_of(entry) for entry in self.rewards]
        for key in self.accuracy_rewards:
            check_choice(f"{where}.accuracy_rewards", key, known)
        advice = f"accuracy_band and strict_len_check read them; the rewards: {', '.join(known)}."
        named = bool(self.accuracy_rewards) or len(known) == 1
        check(named, f"{where}.accuracy_rewards", [], "one or several keys of rewards", advice)

    def settle_rewards(self) -> None:
        """Turn callables among the rewards into entries, also those added after construction."""
        self.rewards = [as_entry(reward) for reward in self.rewards]
        self.eval_rewards = [as_entry(reward) for reward in self.eval_rewards]
