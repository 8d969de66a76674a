"""Settings of a method: a row of the table, with the options of its columns."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from mmrl.algorithms.advantages import BASELINES
from mmrl.algorithms.aggregation import AGGREGATIONS
from mmrl.algorithms.bounds import BOUNDS
from mmrl.algorithms.contrasts import CONTRASTS
from mmrl.algorithms.over_groups import OverGroup
from mmrl.algorithms.ratios import GAUSSIAN_KL, KL, PREDICTION_KL, RATIO_LEVELS
from mmrl.algorithms.surrogates import SURROGATES
from mmrl.config import Settings, above, at_least, check, one_of
from mmrl.config.chosen import Chosen
from mmrl.generation.kinds import STRATEGIES
from mmrl.generation.strategy import StrategyConfig
from mmrl.types.guidance import Guidance


@dataclass(kw_only=True)
class ValueConfig(Settings):
    """Settings of the value model; TRL's names where PPO has them there."""

    where: ClassVar[str] = "algorithm.value"

    gamma: Annotated[float, at_least(0, up_to=1)] = 1.0
    """Discount per denoising step (per slice, where slices hold several)."""
    lam: Annotated[float, at_least(0, up_to=1)] = 1.0
    """Lambda of generalised advantage estimation."""
    cliprange_value: Annotated[float | None, at_least(0)] = None
    """How far a value may move from its old one; null takes `epsilon` of the ratio."""
    learning_rate_scale: Annotated[float, above(0)] = 1.0
    """Factor on the learning rate."""


@dataclass(kw_only=True)
class CompletionValueConfig(Settings):
    """Settings of credit by completions in one pass, see `mmrl.algorithms.completion_value`."""

    where: ClassVar[str] = "algorithm.completion_value"

    slices: Annotated[int, at_least(2)] = 8
    """Parts K of about equal size in which the trace of a rollout is credited; the rewards score
    K - 1 completions of each rollout beside the rollout itself."""
    lam: Annotated[float, at_least(0, up_to=1)] = 0.0
    """Lambda of generalised advantage estimation: 0 credits a slice with what it changed, 1 with
    all that follows."""


@dataclass(kw_only=True)
class AlgorithmConfig(StrategyConfig, Chosen):
    """One row of the table: a choice for every column, with the options of the strategy and of the
    bound, and the loss around them."""

    CHOICES = {"strategy": STRATEGIES, "bound": BOUNDS, "contrast": CONTRASTS}
    where: ClassVar[str] = "algorithm"
    presets: ClassVar = "algorithm"
    """Folder of `configs/` with values of `name`."""
    other_names: ClassVar = {
        "loss_type": "What TRL calls so is aggregation, with surrogate: cispo for its cispo",
        "importance_sampling_level": "What TRL calls so is ratio_level",
    }
    """Names of GRPOConfig, and what to set here."""

    name: str = "mask_grpo"
    """Preset the other columns start from."""
    strategy: Annotated[str, one_of(STRATEGIES)] = "random"
    """What the policy is shown of finished rollouts, see `mmrl.generation.kinds`."""
    bound: Annotated[str, one_of(BOUNDS)] = "token"
    """What is formed from the log-probs, see `mmrl.algorithms.bounds`."""
    contrast: Annotated[str, one_of(CONTRASTS)] = "none"
    """Comparison of clean predictions that takes the place of ratio and surrogate, see
    `mmrl.algorithms.contrasts`."""
    ratio_level: Annotated[str, one_of(RATIO_LEVELS)] = "token"
    """Over what the importance ratio is formed, see `mmrl.algorithms.ratios`."""
    surrogate: Annotated[str, one_of(SURROGATES)] = "clipped"
    """What is maximised of ratio and advantage, see `mmrl.algorithms.surrogates`."""
    aggregation: Annotated[str, one_of(AGGREGATIONS)] = "grpo"
    """How entries are averaged, see `mmrl.algorithms.aggregation`."""
    horizon: Annotated[int | None, at_least(1)] = None
    """Positions that aggregation: dr_grpo divides by; null takes the most of a row."""
    top_entropy_quantile: Annotated[float, above(0, up_to=1)] = 1.0
    """Share of a rollout's scored tokens that are trained on: those with the highest entropy under
    the policy as it sampled, see `mmrl.estimators.highest_entropy`; 1 trains on all."""
    epsilon: Annotated[float, at_least(0)] = 0.2
    """Lower clip range of the ratio (of its logarithm for aggregation: gmpo). For surrogate: dppo
    and cppo how far a token's probability may move, for drpo the divisor of its price, for
    flow_dppo the KL up to which a step may move."""
    epsilon_high: Annotated[float | None, at_least(0)] = None
    """Upper clip range; null equals `epsilon`."""
    delta: float | None = None
    """Largest ratio of an entry with a negative advantage, which `epsilon_high` does not clip
    (two-sided clipping, INTELLECT-2, arXiv 2505.07291); above 1 + `epsilon_high`, null for none."""
    beta: Annotated[float, at_least(0)] = 0.0
    """Weight of the KL; 0 needs no reference policy."""
    kl_target: Annotated[float | None, above(0)] = None
    """KL of a token or a denoising step that `beta` is led to: after each step it is multiplied by
    1 + e / `kl_horizon`, where e = KL / target - 1 within 0.2 of 0 (adaptive controller of arXiv
    1909.08593, as in TRL); null keeps it."""
    kl_horizon: Annotated[float, at_least(1)] = 10.0
    """Steps in which `beta` may change by a fifth."""
    beta_old: Annotated[float, at_least(0)] = 0.0
    """Weight of a further KL, to the run's `old_policy`."""
    kl: Annotated[str, one_of([*KL, *GAUSSIAN_KL, *PREDICTION_KL])] = "k3"
    """KL estimator: k1, k2 or k3 from log-probs; of denoising steps of a latent also gaussian or
    gaussian_rate, which differ by their divisor; velocity where latents are noised again, see
    `mmrl.algorithms.ratios`."""
    kl_to: Literal["reference", "old"] = "reference"
    """Policy the KL is taken to: reference, or old (as it was when it sampled)."""
    kl_level: Literal["token", "bound"] = "token"
    """Of what the KL is taken: of every scored token, or of the values of the bound."""
    old_logprobs: Literal["replay", "rollout"] = "replay"
    """Log-probs of the policy that sampled: from scoring it as the trained one is (replay), which
    makes the first ratio 1, or as the sampler recorded them (rollout), which costs no forward and
    makes it 1 up to rounding (strategy: replay)."""
    baseline: Annotated[str, one_of(BASELINES)] = "group"
    """What a reward is compared with: the mean of the group, of the others of the group
    (leave_one_out) or of the batch, or none, see `mmrl.algorithms.advantages`."""
    scale_rewards: Literal["group", "chunk", "batch", "none", "softmax"] = "group"
    """Whose deviation divides the advantages: group, batch or none; or softmax (wd1), see
    `mmrl.algorithms.advantages`."""
    deviation: Literal["sample", "population"] = "sample"
    """Whether this deviation is that of a sample, by n - 1, or of a population, by n."""
    multi_objective_aggregation: Literal["sum_then_normalize", "normalize_then_sum"] = (
        "sum_then_normalize"
    )
    """What several rewards are: one, their weighted sum; or normalized each within the group, then
    weighted, and their sum scaled by `scale_rewards` (batch: GDPO, none: MixGRPO)."""
    adv_clip_max: Annotated[float | None, above(0)] = None
    """Largest size of an advantage; null for none."""
    cfg_scale: Annotated[float, at_least(0)] = 0.0
    """Guidance while scoring; 0 scores the conditional policy, whatever the sampler used."""
    image_guidance_scale: Annotated[float, at_least(0)] = 0.0
    """Guidance by the source image while scoring (task image_edit)."""
    cond_dropout_prob: Annotated[float, at_least(0, up_to=1)] = 0.0
    """Share of rollouts that an update scores without their prompt, so that the other branch of
    guidance is trained as well, see `mmrl.estimators.condition_dropout`."""
    temperature: Annotated[float, above(0)] = 1.0
    """Divides the logits while scoring."""
    value: ValueConfig | None = None
    """Value model that gives advantages per token (strategy: trace); null for none."""
    completion_value: CompletionValueConfig | None = None
    """Credit by the rewards of partly written rollouts, completed in one pass; null for none."""

    def __post_init__(self) -> None:
        super().__post_init__()
        largest = 1 + self.clip_range[1]
        allowed = f"null, or above 1 + the upper clip range, {largest:g}"
        check(self.delta is None or self.delta > largest, "algorithm.delta", self.delta, allowed)

    def adapt_beta(self, divergence: float) -> None:
        """Lead the weight of the KL to its target, by the KL of a step."""
        if self.kl_target is not None:
            error = min(max(divergence / self.kl_target - 1, -0.2), 0.2)
            self.beta *= 1 + error / self.kl_horizon

    @property
    def clip_range(self) -> tuple[float, float]:
        """The lower and the upper clip range of ratios."""
        return self.epsilon, self.epsilon if self.epsilon_high is None else self.epsilon_high

    @property
    def guidance(self) -> Guidance:
        """Both scales of guidance while scoring."""
        return Guidance(self.cfg_scale, self.image_guidance_scale)

    @property
    def pass_by_pass(self) -> bool:
        """Whether the loss is a sum over passes, so that its gradient is taken one by one."""
        return (
            BOUNDS[self.bound].pass_by_pass
            and not self.follows_rewards
            and RATIO_LEVELS[self.ratio_level].pass_by_pass
            and not AGGREGATIONS[self.aggregation].across_passes
        )

    @property
    def follows_blocks(self) -> bool:
        """Whether passes or ratios use blocks, which should be the sampler's."""
        return STRATEGIES[self.strategy].needs_blocks or self.ratio_level == "block"

    def needs_old(self, num_mini_batches: int = 1) -> bool:
        """Whether the policy that sampled is scored: for a ratio or the KL, once it has moved."""
        moved = self.num_iterations * num_mini_batches > 1 and self.old_logprobs == "replay"
        by_ratio = self.has_ratio and self.ratio_level != "none"
        compares = by_ratio or CONTRASTS[self.contrast].reads_old
        return moved and (compares or (self.beta > 0 and self.kl_to == "old"))

    @property
    def has_ratio(self) -> bool:
        """Whether policies are compared by the ratio, not by a contrast, or not at all."""
        return CONTRASTS[self.contrast].terms is None and not self.follows_rewards

    @property
    def follows_rewards(self) -> bool:
        """Whether the loss is minus the reward, by its own gradient."""
        return STRATEGIES[self.strategy].of_finished

    @property
    def group(self) -> OverGroup | None:
        """What a loss over groups is made of; None where a rollout counts by itself."""
        return CONTRASTS[self.contrast].group or AGGREGATIONS[self.aggregation].group

    def measures_groups(self, num_mini_batches: int = 1) -> bool:
        """Whether rollouts are scored before each optimiser step, for a loss over groups; with
        ratios only once the policy has moved, as all of them are 1 before."""
        moved = not self.has_ratio or self.needs_old(num_mini_batches)
        return self.group is not None and moved

    @property
    def reads_averaged(self) -> bool:
        """Whether the loss compares with the old policy of contrasts."""
        return CONTRASTS[self.contrast].reads_old or self.beta_old > 0

    @property
    def reads_latents(self) -> bool:
        """Whether the loss compares what policies say of latents, not log-probs alone."""
        has_kl = self.beta > 0 or self.beta_old > 0
        by_latents = SURROGATES[self.surrogate].of_steps or CONTRASTS[self.contrast].of_latents
        return by_latents or (has_kl and self.kl not in KL)

    @property
    def needs_reference(self) -> bool:
        """Whether the reference policy is scored."""
        has_kl = self.beta > 0 and self.kl_to == "reference"
        return has_kl or CONTRASTS[self.contrast].reads_reference

    @property
    def value_epsilon(self) -> float:
        """The clip range of values."""
        reach = None if self.value is None else self.value.cliprange_value
        return self.epsilon if reach is None else reach
