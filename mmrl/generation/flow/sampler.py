"""Denoising latents along a list of noise levels.

    start noise -> [velocity, one transition, round, store] for every step

The levels are made once, by the schedule of the checkpoint or of the settings, and stored with what
is written. Steps that are not chosen as stochastic follow the ODE. What a row draws follows from
its own seed and the step, so it depends neither on its neighbours nor on steps that draw nothing.
The host knows levels and choices, so no step waits for the device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING, Any

import torch
from torch import Generator, Tensor

from mmrl.generation.flow.canvas import LatentCanvas
from mmrl.generation.flow.sampler_config import FlowConfig
from mmrl.generation.flow.scoring import conditions, predict_velocity
from mmrl.generation.flow.transitions import dpm2_step, transition
from mmrl.generation.flow.windows import choose_steps
from mmrl.generation.generation import Place
from mmrl.generation.tokens.noise import row_seeds
from mmrl.randomness import generator as named_generator
from mmrl.randomness import stable_seed
from mmrl.runtime.activity import activity, advance
from mmrl.runtime.precision import share_casts
from mmrl.types import Rollout
from mmrl.types.guidance import Guidance

if TYPE_CHECKING:
    from mmrl.models import Policy


@torch.no_grad()
def denoise(
    policy: Policy,
    canvas: LatentCanvas,
    config: Any,
    generator: Generator | Sequence[Generator],
    size: int | None = None,
    place: Place | None = None,
) -> Rollout:
    """Write the latents of a canvas; see `mmrl.samplers.sample`. Raises ValueError: a latent is not
    finite."""
    seeds = row_seeds(generator, len(canvas))
    place = place or Place(0, seeds, [0] * len(seeds), 1)  # each row is a group
    device, width = canvas.text.device, max(map(prod, canvas.shapes))
    starts = place.groups if config.shared_noise else seeds
    chosen, states = choose_stochastic(config, place), (len(seeds), config.steps + 1)
    path = torch.zeros(*states, width, dtype=policy.network.dtype, device=device)
    sigmas, logprobs = (torch.zeros(size, device=device) for size in (states, chosen.shape))
    written = replace(canvas, path=path, sigmas=sigmas, stochastic=chosen.to(device))
    forwards = 0
    with share_casts(policy, device), activity("denoising step", config.steps):
        for shape, rows, part in written.by_shape():
            own = range(len(seeds)) if isinstance(rows, slice) else rows.tolist()
            some = [seeds[row] for row in own], [starts[row] for row in own], chosen[list(own)]
            *found, taken = _denoise_shape(policy, part, shape, config, *some)
            path[rows], sigmas[rows], logprobs[rows] = found
            forwards += taken
    check_finite(written)
    trace = torch.arange(config.steps, device=device).where(written.counted, -1)
    named = torch.tensor(seeds, device=device)
    return Rollout(written, trace, logprobs, asdict(config), named, forwards)


def _denoise_shape(
    policy: Policy,
    canvas: LatentCanvas,
    shape: tuple[int, ...],
    config: Any,
    seeds: Sequence[int],
    starts: Sequence[int],
    chosen: Tensor,
) -> tuple[Tensor, Tensor, Tensor, int]:
    """Path, levels and log-probs of rows of one shape, and the number of forward passes."""
    (path, _), device, number = canvas.written, canvas.text.device, prod(shape)
    tail = int(chosen.any(0).nonzero().max()) + 1 if config.tail_ratio < 1 else config.steps
    sigmas = config.make_sigmas(canvas.rule, policy.network.count_tokens(shape), tail)
    levels, guidance, earlier = sigmas.tolist(), Guidance(config.cfg_scale), None
    branches, logprobs = conditions(canvas, guidance), torch.zeros(chosen.shape, device=device)
    strengths = (chosen * config.noise_level).to(device)
    path[:, 0, :number] = draw_noise(starts, "start", number, device)
    for n, (sigma, following) in enumerate(pairwise(levels)):
        if not sigma:  # a shorter tail is done
            path[:, n + 1] = path[:, n]
            continue
        state, level = path[:, n, :number], strengths.new_full((len(canvas),), sigma)
        velocity = predict_velocity(policy, branches, shape, state, level, guidance)
        if config.name == "dpm2" or n >= tail:
            moved, earlier = dpm2_step(state, velocity, sigma, following, earlier)
        else:
            noise = (
                draw_noise(seeds, n, number, device, chosen[:, n]) if chosen[:, n].any() else None
            )
            known = {"noise": noise, "noise_level": strengths[:, n], "sigma_max": levels[1]}
            step = transition(config.name, state, velocity, sigma, following, **known)
            moved, logprobs[:, n] = step[0], step[3]
        path[:, n + 1, :number] = moved
        advance()
    taken = sum(sigma > 0 for sigma in levels)
    return path, sigmas.to(device).expand(len(canvas), -1), logprobs, taken


def choose_stochastic(config: Any, place: Place) -> Tensor:
    """[B, S] bool on the CPU: the steps in which each row draws noise."""
    if not isinstance(config, FlowConfig):
        return torch.zeros(len(place.groups), config.steps, dtype=torch.bool)
    draws = {seed: named_generator(seed, "window") for seed in place.groups}
    own = config, config.steps, place.step
    groups = {seed: choose_steps(*own, draw, place.size) for seed, draw in draws.items()}
    pairs = zip(place.groups, place.members, strict=True)
    return torch.stack([groups[seed][member] for seed, member in pairs])


def draw_noise(
    seeds: Sequence[int],
    purpose: str | int,
    number: int,
    device: torch.device,
    drawn: Tensor | None = None,
) -> Tensor:
    """[B, number] float32 standard normal draws, those of each row from its seed and the purpose;
    0 in rows that `drawn` [B] leaves out. Drawn on the CPU, so that a GPU gets the same."""
    source = torch.Generator()
    out = torch.zeros(len(seeds), number, pin_memory=device.type == "cuda")
    for row, seed in enumerate(seeds):
        if drawn is None or drawn[row]:
            source.manual_seed(stable_seed(seed, purpose, "noise"))
            torch.randn(number, generator=source, out=out[row])
    return out.to(device, non_blocking=True)


def check_finite(canvas: LatentCanvas) -> None:
    """Raise a ValueError for latents that are not finite, with the first row and step."""
    path, _ = canvas.written
    bad = ~path.isfinite().all(-1)
    if bool(bad.any()):
        row, step = bad.nonzero()[0].tolist()
        whose = f"{canvas.names[row]!r} (row {row})" if canvas.names else f"row {row}"
        raise ValueError(
            f"the latents of {whose} are not finite after denoising step {step}: the weights have"
            " diverged, or their precision is too low for this checkpoint; lower the learning rate,"
            " or take model.dtype: bfloat16 or float32."
        )
