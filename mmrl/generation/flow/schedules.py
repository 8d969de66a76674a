"""Schedules: the sigmas of S denoising steps, from 1 (noise) to 0 (clean).

All published rules have one form: an even grid that begins at 1, bent by a shift k to
k sigma / (1 + (k - 1) sigma), perhaps stretched, and a 0 behind it. "Ten steps of shift 3" is still
two lists: UniRL and DanceGRPO shift 1, 0.9, …, 0.1, which ends at 0.25; the scheduler of diffusers,
where a pipeline leaves the grid to it (SD3), shifts one down to its smallest sigma, which is
shifted already, and ends at 0.0089. So a recipe names its rule.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mmrl.config import check, check_choice

if TYPE_CHECKING:
    from torch import Tensor

SCHEDULER = "FlowMatchEulerDiscreteScheduler"
SOLVERS = ("DPMSolverMultistepScheduler", "UniPCMultistepScheduler")
"""Schedulers that solve a flow in several steps, where they `use_flow_sigmas`."""
OTHER_FORMS = ("use_karras_sigmas", "use_exponential_sigmas", "use_beta_sigmas", "invert_sigmas")


@dataclass(frozen=True, kw_only=True)
class SigmaRule:
    """How the sigmas of a schedule are made."""

    shift: float = 1.0
    """k, where it does not depend on the image."""
    dynamic: str | None = None
    """How it does: exponential (k = e^mu), linear (k = mu), or None."""
    mu: str = "line"
    """A name in `MUS`."""
    tokens: tuple[int, int] = (256, 4096)
    """Two numbers of image tokens, at which mu is `mus` (mu: line)."""
    mus: tuple[float, float] = (0.5, 1.15)
    """See `tokens`."""
    train_steps: int | None = None
    """N, where the grid ends at 1 / N, itself shifted by a static k; None ends it at 1 / S."""
    last: float | None = None
    """The sigma before 0, to which the others are stretched."""


def mu_on_line(rule: SigmaRule, steps: int, tokens: int) -> float:
    """mu on a line through two numbers of tokens (FLUX.1, Qwen-Image)."""
    (few, many), (low, high) = rule.tokens, rule.mus
    return low + (high - low) * (tokens - few) / (many - few)


def mu_as_fitted(rule: SigmaRule, steps: int, tokens: int) -> float:
    """mu by tokens and steps, as fitted for FLUX.2: a line in the tokens for 200 steps and one for
    10, and between them a line in the steps."""
    at_200, at_10 = 0.00016927 * tokens + 0.45666666, 8.73809524e-05 * tokens + 1.89833333
    return at_200 if tokens > 4300 else at_200 + (at_10 - at_200) * (200 - steps) / 190


MUS = {"fitted": mu_as_fitted, "line": mu_on_line}
"""Ways from tokens and steps to mu, by the name used in a rule."""
RULES = {
    "dynamic": SigmaRule(dynamic="exponential"),
    "fitted": SigmaRule(dynamic="exponential", mu="fitted"),
    "linear": SigmaRule(),
    "static": SigmaRule(shift=3.0),
    "static_twice": SigmaRule(shift=3.0, train_steps=1000),
}
"""Rules by name, with the numbers of SD3 and FLUX; `dataclasses.replace` gives others."""


def make_sigmas(rule: SigmaRule | str, steps: int, tokens: int | None = None) -> Tensor:
    """The sigmas of a schedule of `steps` denoising steps S by a rule or its name in `RULES`: [S +
    1] float32 on the CPU, computed in float64: 1 first, falling, 0 last. `tokens`: image tokens as
    the network reads them, for a dynamic rule.

    Raises ConfigError: an unknown rule, no steps, or no tokens for a dynamic rule."""
    import torch

    if isinstance(rule, str):
        check_choice("rule", rule, RULES)
        rule = RULES[rule]
    check(steps >= 1, "steps", steps, "at least 1")
    k = _find_shift(rule, steps, tokens)
    least = 1 / (rule.train_steps or steps)
    if rule.train_steps and not rule.dynamic:
        least = _shift(least, k)
    sigmas = _shift(torch.linspace(1, least, steps, dtype=torch.float64), k)
    if rule.last is not None and steps > 1:
        sigmas = 1 - (1 - sigmas) * (1 - rule.last) / (1 - sigmas[-1])
    return torch.cat([sigmas, sigmas.new_zeros(1)]).float()


def compress_tail(
    rule: SigmaRule, sigmas: Tensor, start: int, ratio: float, tokens: int | None = None
) -> Tensor:
    """[S + 1] float32: the sigmas [S + 1] that `make_sigmas` made of the rule and the tokens, with
    fewer from number `start`, 1 to below S, on (MixGRPO-Flash, arXiv 2507.21802).

    Of the points of the tail, with the one before it, a `ratio` is kept, rounded down: an even
    grid, bent by the shift, with zeros behind it. In the paper's code a ratio that keeps one point
    leaves it noisy; here it is denoised."""
    import torch

    k = _find_shift(rule, len(sigmas) - 1, tokens)
    points = max(2, int((len(sigmas) - start) * ratio + 1e-6))
    tail = torch.linspace(float(_shift(sigmas[start].double(), 1 / k)), 0, points).double()
    out = torch.zeros_like(sigmas)
    out[:start], out[start : start + points] = sigmas[:start], _shift(tail, k).float()
    return out


def rule_of(scheduler: Mapping[str, Any], *, even: bool | None = None) -> SigmaRule:
    """The rule by which a pipeline of diffusers denoises, from its `scheduler_config.json`. Of one
    with a solver (Sana, Wan) it is the rule of Euler's with its shift: an even grid from 1; the
    solver's own sigmas are within 0.002 of these.

    `even`: whether it gives its scheduler the grid 1 … 1 / S (FLUX, Qwen-Image, Z-Image) or leaves
    the grid to it (SD3); None: whether the shift is dynamic or it is a solver. Raises ConfigError:
    a scheduler that is not of flow matching, or that makes sigmas of another form."""
    get, dynamic = scheduler.get, scheduler.get("use_dynamic_shifting", False)
    name, predicted = get("_class_name", SCHEDULER), get("prediction_type", "flow_prediction")
    allowed = f"{SCHEDULER}, with which a network predicts the velocity of a flow"
    solves = name in SOLVERS and get("use_flow_sigmas", False)
    even = (dynamic or solves) if even is None else even
    found = name if predicted == "flow_prediction" else f"{name} ({predicted})"
    check(found == SCHEDULER or (solves and found == name), "the scheduler", found, allowed)
    for key in OTHER_FORMS:
        check(not get(key), f"{key} of the scheduler", get(key), "false")
    return SigmaRule(
        shift=get("flow_shift" if solves else "shift", 1.0),
        dynamic=get("time_shift_type", "exponential") if dynamic else None,
        tokens=(get("base_image_seq_len", 256), get("max_image_seq_len", 4096)),
        mus=(get("base_shift", 0.5), get("max_shift", 1.15)),
        train_steps=None if even else get("num_train_timesteps"),
        last=get("shift_terminal") or None,
    )


def _find_shift(rule: SigmaRule, steps: int, tokens: int | None) -> float:
    """k of a rule."""
    if rule.dynamic is None:
        return rule.shift
    check(tokens is not None, "tokens", tokens, "the number of image tokens, for a dynamic rule")
    mu = MUS[rule.mu](rule, steps, tokens or 0)
    return math.exp(mu) if rule.dynamic == "exponential" else mu


def _shift(sigmas: Any, k: float) -> Any:
    """A number or tensor bent by k; 0 and 1 stay."""
    return k * sigmas / (1 + (k - 1) * sigmas)
