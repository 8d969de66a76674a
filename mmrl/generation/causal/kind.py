"""Generation by appending tokens, as a kind of generation."""

from __future__ import annotations

from mmrl.generation.causal.engine_config import EngineConfig, VLLMConfig, check_engine
from mmrl.generation.causal.sampler_config import AutoregressiveConfig
from mmrl.generation.generation import Generation, Sampler, late
from mmrl.generation.strategy import Draw, Strategy, StrategyConfig
from mmrl.types import Passes, Rollout


def plan_reading(rollout: Rollout, config: StrategyConfig, draw: Draw) -> Passes:
    """One pass that scores every token of the response up to its end."""
    from mmrl.generation.causal.canvas import Reading

    canvas = rollout.canvas
    scored = canvas.counted
    order = (canvas.response.cumsum(1) - 1).where(canvas.response, -1)
    return Passes(Reading(), scored[None], scored[None].float(), steps=order)


def find_differences(config: AutoregressiveConfig, exact_cache: bool) -> list[str]:
    """See `Sampler.find_differences`."""
    if config.filters:
        names = "top_k, top_p, min_p, repetition_penalty"
        return [f"the rollout changes the distribution of tokens ({names}) and scoring does not"]
    return []


AUTOREGRESSIVE = Sampler(
    late("mmrl.generation.causal.sampler:append_tokens"),
    AutoregressiveConfig,
    count_steps=lambda config, length: length,
    count_logits=lambda config, length: 1,
    keeps_cache=lambda config: True,
    find_differences=find_differences,
)
BY_ENGINE = Sampler(
    late("mmrl.engines.sampler:write"),
    EngineConfig,
    count_steps=lambda config, length: length,
    check=check_engine,
    has_fixed_forwards=lambda config: True,
    can_refill=lambda policy, config: True,
    find_differences=find_differences,
    prepare=late("mmrl.engines.sampler:follow"),
)
SAMPLERS = {
    "autoregressive": AUTOREGRESSIVE,
    "vllm": BY_ENGINE._replace(Config=VLLMConfig),
    "sglang": BY_ENGINE,
}
READING = Strategy(
    plan_reading, number=lambda config, steps, length: 1, ordered=True, reads_trace=True
)
SCORE = late("mmrl.generation.tokens.scoring.scoring:score")
CAUSAL = Generation(SAMPLERS, {"causal": READING}, SCORE)
