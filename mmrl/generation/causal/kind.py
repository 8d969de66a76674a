"""Generation by appending tokens, as a kind of generation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mmrl.generation.causal.sampler_config import AutoregressiveConfig
from mmrl.generation.generation import Generation, Sampler
from mmrl.generation.strategy import Draw, Strategy, StrategyConfig
from mmrl.generation.tokens.scoring import score
from mmrl.types import Passes, Rollout

if TYPE_CHECKING:
    from mmrl.models import Policy


def write(policy: Policy, canvas: Any, config: Any, generator: Any, *_: Any) -> Rollout:
    """See `mmrl.generation.causal.sampler.append_tokens`."""
    from mmrl.generation.causal.sampler import append_tokens

    return append_tokens(policy, canvas, config, generator)


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
    write,
    AutoregressiveConfig,
    count_steps=lambda config, length: length,
    count_logits=lambda config, length: 1,
    keeps_cache=lambda config: True,
    find_differences=find_differences,
)
READING = Strategy(
    plan_reading, number=lambda config, steps, length: 1, ordered=True, reads_trace=True
)
CAUSAL = Generation({"autoregressive": AUTOREGRESSIVE}, {"causal": READING}, score)
