"""A completion with the order in which it was written."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from omegaconf import OmegaConf

from mmrl.config import check, merge
from mmrl.config.settings import check_word
from mmrl.generation.kinds import GENERATIONS
from mmrl.randomness import generator
from mmrl.rollouts.frames import draw_frames
from mmrl.samplers import SamplerConfig, check_sampler, count_steps, sample

if TYPE_CHECKING:
    from PIL import Image

    from mmrl.models import Policy
    from mmrl.types import Completion, Prompt, Video

MOST_STEPS = 4096
"""What a trace may have; more would fill the page."""


@dataclass(frozen=True)
class Trace:
    """One completion, position by position: [n] the step from 0 that wrote each response position,
    of a text up to its end (`written_at`), its log-prob under the sampler (`logprobs`), and of a
    text its token (`tokens`).

    `steps` are denoising steps, `forwards` forward passes, `seconds` those of sampling. `grid`:
    height and width of an image in tokens, None for a text. `frames`: of what can be decoded before
    it is finished, before the first step and after each. `blocks`: [n] the block of each position,
    from 0; empty where the text is not divided."""

    completion: Completion
    written_at: list[int]
    logprobs: list[float]
    tokens: list[str]
    steps: int
    grid: tuple[int, int] | None = None
    frames: tuple[Image.Image | Video, ...] = ()
    blocks: tuple[int, ...] = ()
    forwards: int = 0
    seconds: float = 0.0


def read_sampler(settings: Mapping[str, Any], more: str = "") -> SamplerConfig:
    """A sampler from single settings and a line `key=value key=value` of others. Raises
    ConfigError: an unknown setting, a wrong value, or a rule that cannot run."""
    words = more.split()
    for word in words:
        check("=" in word, "more settings", word, "key=value, separated by spaces")
        check_word(*word.split("=", 1))
    config = merge(SamplerConfig, dict(settings), OmegaConf.from_dotlist(words), where="sampler")
    check_sampler(config)
    steps = count_steps(config, MOST_STEPS)
    check(steps <= MOST_STEPS, "sampler.steps", steps, f"at most {MOST_STEPS}")
    return config


def sample_trace(
    policy: Policy, prompt: Prompt, config: SamplerConfig, seed: int, length: int | None = None
) -> Trace:
    """Sample one completion; equal seeds and settings give equal draws for every checkpoint. Raises
    ValueError: see `Policy.canvas` and `sample`."""
    began = time.perf_counter()
    canvas = policy.canvas([prompt], length)
    rollout = sample(policy, canvas, config, [generator(seed, "demo", prompt.text)])
    seconds = time.perf_counter() - began
    done = rollout.canvas
    counted = done.counted[0]
    known, blocks = done.describe(0), rollout.blocks
    completion, grid = policy.decode(done, [prompt])[0], known.get("grid")
    steps = max(count_steps(config, int(counted.sum())), 1 + int(rollout.trace.max()))
    frames: Sequence[Any] = ()
    if GENERATIONS[done.kind].unroll is not None and not isinstance(completion, str):
        frames = draw_frames(policy, rollout, 0, prompt, completion, steps)
    return Trace(
        completion=completion,
        written_at=rollout.trace[0][counted].tolist(),
        logprobs=rollout.logprobs[0][counted].tolist(),
        # of a split character the parts are shown as replacement signs
        tokens=[]
        if grid or frames
        else [str(policy.tokenizer.decode([token])) for token in known["tokens"]],
        steps=steps,
        grid=tuple(grid) if grid else None,
        frames=tuple(frames),
        blocks=() if blocks is None else tuple(blocks[0][counted].tolist()),
        forwards=rollout.forwards,
        seconds=seconds,
    )
