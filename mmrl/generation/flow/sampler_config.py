"""Settings of samplers that denoise latents."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, ClassVar

from mmrl.config import Settings, above, at_least, check, one_of
from mmrl.generation.flow.schedules import RULES, SigmaRule, compress_tail, make_sigmas
from mmrl.generation.flow.windows import WindowConfig

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(kw_only=True)
class SolverConfig(Settings):
    """A deterministic walk along the noise levels: what evaluations, and methods that need no
    log-probs, sample with."""

    where: ClassVar[str] = "sampler"
    other_names: ClassVar = {
        "guidance_scale": "cfg_scale is diffusers' guidance_scale less 1, that of Z-Image itself",
        "true_cfg_scale": "cfg_scale is diffusers' true_cfg_scale less 1",
        "num_inference_steps": "What diffusers calls so is steps",
    }
    """Names of diffusers' pipelines, and what to set here."""

    steps: Annotated[int, at_least(1)] = 12
    """Denoising steps S."""
    cfg_scale: Annotated[float, at_least(0)] = 0.0
    """Classifier-free guidance w: (1 + w) conditional - w unconditional velocity, so diffusers'
    `guidance_scale` less 1; 0 is off."""
    sigma_rule: Annotated[str | None, one_of(RULES)] = None
    """Rule of the noise levels, see `mmrl.generation.flow.schedules`; null follows the scheduler of
    the checkpoint."""
    shift: Annotated[float | None, above(0)] = None
    """Shift of a static schedule; null follows the checkpoint."""
    shared_noise: bool = False
    """Whether the rollouts of a prompt begin with the same noise."""

    noise_level: ClassVar[float] = 0.0
    tail_ratio: ClassVar[float] = 1.0

    def make_sigmas(self, rule: SigmaRule, tokens: int, tail: int | None = None) -> Tensor:
        """[S + 1] float32 noise levels of latents of some tokens, by these settings or else by the
        rule of the checkpoint; `tail` is the first step of those that become fewer."""
        chosen = rule if self.sigma_rule is None else RULES[self.sigma_rule]
        if self.shift is not None:
            chosen = replace(chosen, shift=self.shift)
        sigmas = make_sigmas(chosen, self.steps, tokens)
        if tail is None or tail >= self.steps:
            return sigmas
        return compress_tail(chosen, sigmas, tail, self.tail_ratio, tokens)


@dataclass(kw_only=True)
class FlowConfig(SolverConfig, WindowConfig):
    """A walk along the noise levels of which some steps draw noise, so that they have log-probs."""

    noise_level: Annotated[float, above(0)] = 0.7  # type: ignore[misc]
    """How much noise a stochastic step draws: a of `mmrl.generation.flow.transitions`."""
    tail_ratio: Annotated[float, above(0, up_to=1)] = 1.0  # type: ignore[misc]
    """Share of the steps after the window that are taken, then by dpm2 (MixGRPO-Flash: 0.4); the
    window must be the same in all rollouts of an iteration. 1 takes all, by the ODE."""

    def find_place(self, steps: int) -> tuple[int, int, int]:
        """See `WindowConfig.find_place`. Raises ConfigError: a shorter tail, differing windows."""
        if self.tail_ratio < 1 and self.window_size is not None:
            alike = self.window_rule == "progressive" or self.window_draw == "iteration"
            allowed = "1; or set window_draw: iteration or window_rule: progressive"
            fits = alike and self.window_rule != "stratified"
            check(fits, f"{self.where}.tail_ratio", self.tail_ratio, allowed)
        return super().find_place(steps)
