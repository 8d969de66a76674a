"""Whether a method and a sampler fit together: what is refused, and what is warned of."""

from mmrl.algorithms import AlgorithmConfig
from mmrl.config import ConfigError, check
from mmrl.generation.kinds import GENERATIONS, SAMPLER_KINDS, SAMPLERS, STRATEGIES, STRATEGY_KINDS
from mmrl.generation.strategy import OF_PROMPT
from mmrl.samplers import SamplerConfig, count_actions, count_steps


def check_pairing(method: AlgorithmConfig, sampler: SamplerConfig, where: str) -> None:
    """Raise a ConfigError where strategy and sampler are of two kinds of generation, where the
    method asks for what this kind lacks (guidance, a completion in one pass), where only draws are
    scored and the sampler does not tell them apart, or where passes follow the recorded trace and a
    rollout is a single step."""
    kind = SAMPLER_KINDS[sampler.name]
    allowed = [name for name, other in STRATEGY_KINDS.items() if other == kind]
    names = f"{', '.join(sorted(allowed))}, as sampler {sampler.name} writes a {kind} canvas"
    check(method.strategy in allowed, f"{where}.algorithm.strategy", method.strategy, names)
    _check_lacking(method, sampler, kind, f"{where}.algorithm")
    drawn = sorted(name for name, each in GENERATIONS[kind].samplers.items() if each.draws)
    names = f"{' or '.join(drawn)}, whose steps have log-probs"
    fits = SAMPLERS[sampler.name].draws or STRATEGIES[method.strategy].of_predictions
    check(fits, f"{where}.sampler.name", sampler.name, names)
    forking = [name for name, each in GENERATIONS[kind].samplers.items() if each.has_forks]
    names = f"{' or '.join(forking)}, whose draws strategy {method.strategy} scores"
    fits = SAMPLERS[sampler.name].has_forks or not STRATEGIES[method.strategy].of_forks
    check(fits, f"{where}.sampler.name", sampler.name, names)
    fits = method.block_size != OF_PROMPT or getattr(sampler, "block_size", None) == OF_PROMPT
    allowed = f"null or a number, as sampler.block_size is not {OF_PROMPT}"
    check(fits, f"{where}.algorithm.block_size", method.block_size, allowed)
    corrected = getattr(sampler, "importance_sampling_mode", "none") != "none"
    allowed = "replay, as sampler.importance_sampling_mode compares the trainer with the engine"
    fits = not corrected or method.old_logprobs == "replay"
    check(fits, f"{where}.algorithm.old_logprobs", method.old_logprobs, allowed)
    if method.follows_rewards:
        _check_followed(method, sampler, where)
    if STRATEGIES[method.strategy].reads_trace and count_steps(sampler, 2) == 1:
        raise ConfigError(
            f"{where}.algorithm.strategy is {method.strategy!r}, and {where}.sampler.steps is 1, so"
            " there is no trace to follow; raise the steps, or use strategy: full, which is then"
            " the same."
        )


def _check_followed(method: AlgorithmConfig, sampler: SamplerConfig, where: str) -> None:
    """Refuse what cannot be taken again with a gradient."""
    why = f"as strategy: {method.strategy} takes its steps again with a gradient"
    euler = sorted(name for name, each in SAMPLERS.items() if each.is_euler)
    fits = SAMPLERS[sampler.name].is_euler
    check(fits, f"{where}.sampler.name", sampler.name, f"{' or '.join(euler)}, {why}")
    for owner, each in (("sampler", sampler), ("algorithm", method)):
        check(each.cfg_scale == 0, f"{where}.{owner}.cfg_scale", each.cfg_scale, f"0, {why}")
    most = sampler.steps - method.count_exits(sampler.steps) + 1
    allowed = f"at most {most}, the steps up to the first exit of exit_range"
    fits = method.grad_steps <= most
    check(fits, f"{where}.algorithm.grad_steps", method.grad_steps, allowed)


def _check_lacking(method: AlgorithmConfig, sampler: SamplerConfig, kind: str, where: str) -> None:
    if not hasattr(sampler, "cfg_scale"):
        allowed = f"0, as sampler {sampler.name} writes a {kind} canvas, which has no other branch"
        for key in ("cfg_scale", "cond_dropout_prob"):
            check(getattr(method, key) == 0, f"{where}.{key}", getattr(method, key), allowed)
    possible = method.completion_value is None or GENERATIONS[kind].finish is not None
    allowed = f"null, as a {kind} canvas is not completed in one pass"
    check(possible, f"{where}.completion_value", "given", allowed)


def count_candidates(method: AlgorithmConfig, sampler: SamplerConfig, length: int) -> int:
    """The most steps that passes over a rollout choose from: those with a log-prob, or all where
    the method needs none."""
    every = STRATEGIES[method.strategy].of_predictions
    return (count_steps if every else count_actions)(sampler, length)


def find_differences(
    method: AlgorithmConfig, sampler: SamplerConfig, exact_cache: bool = False
) -> list[str]:
    """How the scored policy differs from the one that samples; empty where it does not.
    `exact_cache`: a cache changes nothing, as where attention is causal between blocks."""
    found = []
    for key in ("cfg_scale", "image_guidance_scale", "temperature"):
        scoring = getattr(method, key)
        rollout = getattr(sampler, key, 0.0 if key.endswith("scale") else scoring)
        if rollout != scoring:
            found.append(f"{key} is {rollout:g} in the rollout and {scoring:g} in scoring")
    found += SAMPLERS[sampler.name].find_differences(sampler, exact_cache)
    size = getattr(sampler, "block_size", None)
    if method.follows_blocks and method.block_size != size:
        sizes = ["null" if n is None else n for n in (size, method.block_size)]
        found.append("block_size is {} in the rollout and {} in scoring".format(*sizes))
    strategy, other = STRATEGIES[method.strategy], sampler.name != method.strategy
    if SAMPLERS[sampler.name].has_forks and not strategy.of_forks:
        found.append(f"sampler {sampler.name} takes certain tokens without a draw and scoring none")
    if strategy.ordered and not strategy.reads_trace and other:
        found.append(
            f"scoring is {method.strategy}, an order that sampler {sampler.name} does not follow"
        )
    return found
