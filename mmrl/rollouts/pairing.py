"""Whether a method and a sampler fit together: what is refused, and what is warned of."""

from mmrl.algorithms import AlgorithmConfig
from mmrl.config import ConfigError
from mmrl.estimators import MASKS
from mmrl.samplers import SamplerConfig


def check_pairing(method: AlgorithmConfig, sampler: SamplerConfig, where: str) -> None:
    """Raise a ConfigError where masks follow the recorded trace and a rollout is a single step."""
    if MASKS[method.mask].reads_trace and sampler.steps == 1:
        raise ConfigError(
            f"{where}.algorithm.mask is {method.mask!r}, and {where}.sampler.steps is 1, so there"
            " is no trace to follow; raise the steps, or use mask: full, which is then the same."
        )


def find_differences(
    method: AlgorithmConfig, sampler: SamplerConfig, exact_cache: bool = False
) -> list[str]:
    """How the scored policy differs from the one that samples; empty where it does not.

    Args:
        method: scores.
        sampler: of the rollouts.
        exact_cache: whether a cache changes nothing, as where attention is causal between blocks.
    """
    found = []
    for key in ("cfg_scale", "image_guidance_scale", "temperature"):
        rollout, scoring = getattr(sampler, key), getattr(method, key)
        if rollout != scoring:
            found.append(f"{key} is {rollout:g} in the rollout and {scoring:g} in scoring")
    if sampler.top_k or sampler.top_p < 1:
        found.append("the rollout filters tokens (top_k, top_p) and scoring does not")
    if sampler.eos == "suppress":
        found.append("the rollout never writes the end token (eos: suppress) and scoring allows it")
    if sampler.cache != "none" and not exact_cache:
        found.append(f"the rollout reads a cache ({sampler.cache}) and scoring reads none")
    if method.follows_blocks and method.block_size != sampler.block_size:
        sizes = ["null" if n is None else n for n in (sampler.block_size, method.block_size)]
        found.append("block_size is {} in the rollout and {} in scoring".format(*sizes))
    if (
        MASKS[method.mask].ordered
        and not MASKS[method.mask].reads_trace
        and sampler.name != method.mask
    ):
        found.append(
            f"scoring is {method.mask}, an order that sampler {sampler.name} does not follow"
        )
    return found
