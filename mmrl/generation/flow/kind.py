"""Generation by denoising latents, as a kind of generation."""

from __future__ import annotations

from mmrl.generation.flow.last_steps import LAST_STEPS
from mmrl.generation.flow.renoise import RENOISE
from mmrl.generation.flow.replay import REPLAY
from mmrl.generation.flow.sampler_config import FlowConfig, SolverConfig
from mmrl.generation.generation import Generation, Sampler, late


def check_window(config: SolverConfig, name: str, where: str, length: int | None) -> None:
    """Raise a ConfigError for stochastic steps outside the schedule."""
    if isinstance(config, FlowConfig):
        config.find_place(config.steps)


def denoising(config: type[SolverConfig], is_euler: bool = False) -> Sampler:
    """The row of a kernel with these settings."""
    draws = issubclass(config, FlowConfig)
    return Sampler(
        late("mmrl.generation.flow.sampler:denoise"),
        config,
        count_steps=lambda config, length: config.steps,
        check=check_window,
        has_fixed_forwards=lambda config: True,
        count_actions=lambda config, length: config.find_place(config.steps)[2] if draws else 0,
        draws=draws,
        is_euler=is_euler,
    )


SAMPLERS = {
    **{name: denoising(FlowConfig) for name in ("flow", "flow_wan", "dance", "cps")},
    "dpm2": denoising(SolverConfig),
    "ode": denoising(SolverConfig, is_euler=True),
}
FLOW = Generation(
    SAMPLERS,
    {"replay": REPLAY, "renoise": RENOISE, "last_steps": LAST_STEPS},
    late("mmrl.generation.flow.scoring:score"),
    unroll=lambda canvas, row: canvas.unroll(row),
)
