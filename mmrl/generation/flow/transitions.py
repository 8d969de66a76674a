"""Transition kernels: one step of a latent from noise level sigma to the next, as a Gaussian.

With x = (1 - sigma) clean + sigma noise, a network predicts the velocity v = noise - clean. A
kernel maps a sample and its velocity to the mean and the deviation of the next sample:

    flow   an SDE with the marginals of the ODE and the strength a sqrt(sigma / (1 - sigma)) at
           noise level a (Flow-GRPO, arXiv 2505.05470)
    flow_wan  the same SDE with the strength a sigma times the second sigma of the schedule, which
           the public Flow-GRPO has for Wan, with a = 1
    dance  the same SDE with the constant strength a (DanceGRPO, arXiv 2505.07818)
    cps    noise and clean prediction, mixed anew so that their shares fit the next sigma (Flow-CPS,
           arXiv 2509.05952); its marginals are not those of the ODE
    ode    the Euler step, deterministic; DDIM is the same
    dpm2   DPM-Solver++ 2M (arXiv 2211.01095), deterministic; `dpm2_step` has its second order

At noise level 0 each is deterministic. All is computed in float32, or in float64 where the sample
is. Log-probs and KL are means over the elements of a row. Numbers such as sigma are Python floats,
or tensors [B] where rows are at different steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from mmrl.config import check, check_choice

if TYPE_CHECKING:
    from torch import Tensor

ALMOST_ONE = 1 - 1e-5
"""A sigma above is that of pure noise; some schedulers begin at 1 - 1e-6."""


class Step(NamedTuple):
    """What `predict` takes, as `transition` does; kernels get numbers as tensors [B, 1, …]."""

    sample: Tensor
    velocity: Tensor
    sigma: Any
    next_sigma: Any
    noise_level: Any
    sigma_max: Any


def flow(step: Step) -> tuple[Tensor, Tensor]:
    """Flow-GRPO. At a sigma of 1, where the strength is infinite, sigma_max replaces it."""
    below_one = step.sigma_max.where(step.sigma > ALMOST_ONE, step.sigma)
    strength = step.noise_level * (step.sigma / (1 - below_one)).sqrt()
    return dance(step._replace(noise_level=strength))


def dance(step: Step) -> tuple[Tensor, Tensor]:
    """DanceGRPO: an Euler-Maruyama step of the SDE."""
    x, v, sigma, next_sigma, strength, _ = step
    change, drift = next_sigma - sigma, strength**2 / (2 * sigma)
    mean = x * (1 + drift * change) + v * (1 + drift * (1 - sigma)) * change
    return mean, strength * (-change).sqrt()


def flow_wan(step: Step) -> tuple[Tensor, Tensor]:
    """Flow-GRPO as its public code has it for Wan: the strength falls with sigma."""
    return dance(step._replace(noise_level=step.noise_level * step.sigma_max * step.sigma))


def cps(step: Step) -> tuple[Tensor, Tensor]:
    """Flow-CPS. The deviation does not depend on the size of the step."""
    x, v, sigma, next_sigma, level, _ = step
    angle = level * (math.pi / 2)
    noise = next_sigma * angle.cos().abs() * (x + (1 - sigma) * v)
    return (1 - next_sigma) * (x - sigma * v) + noise, next_sigma * angle.sin()


def ode(step: Step) -> tuple[Tensor, Tensor]:
    """The Euler step, with deviation 0."""
    change = step.next_sigma - step.sigma
    return step.sample + step.velocity * change, 0 * change


def gaussian(sample: Tensor, mean: Tensor, deviation: Tensor) -> Tensor:
    """The log-density of each element."""
    squared = ((sample - mean) / deviation).square()
    return -squared / 2 - deviation.log() - math.log(2 * math.pi) / 2


def squared_error(sample: Tensor, mean: Tensor, deviation: Tensor) -> Tensor:
    """What replaces the log-density of each element in Flow-CPS."""
    return -(sample - mean).square()


class Kernel(NamedTuple):
    """Mean and deviation of a step; and the log-density of an element, None if deterministic."""

    moments: Callable[[Step], tuple[Tensor, Tensor]]
    density: Callable[[Tensor, Tensor, Tensor], Tensor] | None = None


KERNELS = {
    "cps": Kernel(cps, squared_error),
    "dance": Kernel(dance, gaussian),
    "dpm2": Kernel(ode),
    "flow": Kernel(flow, gaussian),
    "flow_wan": Kernel(flow_wan, gaussian),
    "ode": Kernel(ode),
}
"""Kernels by the name used in configurations."""


def transition(
    kernel: str,
    sample: Tensor,
    velocity: Tensor,
    sigma: float | Tensor,
    next_sigma: float | Tensor,
    *,
    noise: Tensor | None,
    noise_level: float | Tensor,
    sigma_max: float | Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """One step of a kernel, a name in `KERNELS`, from a sample [B, …] and the velocity predicted
    there. `noise_level` is 0 in rows whose step is deterministic, as all are without `noise` [B,
    …], standard normal; `sigma_max` is what replaces a sigma of 1 in `flow`, the second one of the
    schedule.

    Returns the next sample [B, …] in the dtype of `sample`; the mean [B, …]; the deviation [B]; and
    the log-prob [B] of the next sample as rounded to that dtype (see `logprob_of`).

    Raises ConfigError: an unknown kernel, or noise for a deterministic one."""
    check_choice("kernel", kernel, KERNELS)
    noisy = " or ".join(sorted(name for name, each in KERNELS.items() if each.density))
    fits = noise is None or KERNELS[kernel].density is not None
    check(fits, "kernel", kernel, f"{noisy} where noise is given", "It is deterministic.")
    level = 0.0 if noise is None else noise_level
    mean, deviation = predict(kernel, Step(sample, velocity, sigma, next_sigma, level, sigma_max))
    moved = mean if noise is None else mean + _rows(deviation, mean) * noise.to(mean)
    stored = moved.to(sample.dtype)
    return stored, mean, deviation, logprob_of(kernel, stored, mean, deviation)


def predict(kernel: str, step: Step) -> tuple[Tensor, Tensor]:
    """The mean [B, …] and the deviation [B] of the next sample."""
    sample, velocity, *numbers = step
    wide = _widen(sample)
    rows = (_rows(each, wide) for each in numbers)
    mean, deviation = KERNELS[kernel].moments(Step(wide, _widen(velocity), *rows))
    return mean, deviation.flatten()


def logprob_of(kernel: str, following: Tensor, mean: Tensor, deviation: Tensor) -> Tensor:
    """[B] log-prob of the next sample `following` [B, …], held fixed. 0 in rows whose deviation [B]
    is 0, and with a deterministic kernel."""
    density = KERNELS[kernel].density
    if density is None:
        return mean.new_zeros(len(mean))
    given = deviation > 0  # a 1 elsewhere keeps values and gradients from NaN
    elements = density(_widen(following.detach()), mean, _rows(deviation.where(given, 1), mean))
    return elements.flatten(1).mean(1).where(given, 0)


def clean(sample: Tensor, velocity: Tensor, sigma: float | Tensor) -> Tensor:
    """[B, …] the clean prediction, sample - sigma velocity."""
    sample = _widen(sample)
    return sample - _rows(sigma, sample) * _widen(velocity)


def dpm2_step(
    sample: Tensor,
    velocity: Tensor,
    sigma: float | Tensor,
    next_sigma: float | Tensor,
    previous: tuple[Tensor, float | Tensor] | None,
) -> tuple[Tensor, tuple[Tensor, float | Tensor]]:
    """One step of DPM-Solver++ 2M: exact for clean predictions linear in log((1 - sigma) / sigma).
    The first, the last and that after a sigma of 1 are of first order.

    Returns the next sample [B, …] in the dtype of `sample`; and the clean prediction with its
    sigma, which the following step gets as `previous`, None at the first. Arguments as of
    `transition`."""
    target = found = clean(sample, velocity, sigma)
    here, there = _rows(sigma, found), _rows(next_sigma, found)
    if previous is not None:
        before = _rows(previous[1], found)
        share = (here.logit() - there.logit()) / (before.logit() - here.logit()) / 2
        target = found + share.where(there > 0, 0) * (found - previous[0])
    moved = target + (there / here) * (_widen(sample) - target)
    return moved.to(sample.dtype), (found, sigma)


def _widen(values: Tensor) -> Tensor:
    """Values at least in float32."""
    return values if values.dtype.itemsize > 4 else values.float()


def _rows(value: float | Tensor, like: Tensor) -> Tensor:
    """A number of each row, [B, 1, …], in the dtype and on the device of `like` [B, …]."""
    shape = [len(like)] + [1] * (like.dim() - 1)
    if isinstance(value, int | float):
        return like.new_full(shape, value)
    return value.to(like).expand(len(like)).reshape(shape)
