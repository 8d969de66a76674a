"""Rollout of one group of images: `mmrl.samplers` and the straightforward way.

    python scripts/bench/rollout.py [mask_policy=ignore] [width=64 layers=2 …]

Both ways draw the same uniforms, so they must write the same canvases.
"""

import time
from collections.abc import Callable
from typing import Any

import torch
from setting import Measured, Setting, compare, group, policy
from torch import Tensor

from mmrl.randomness import generator
from mmrl.samplers import SamplerConfig, emerge, sample
from mmrl.samplers.noise import categorical, row_seeds
from mmrl.samplers.state import State
from mmrl.types import Canvas


def generators(s: Setting) -> list[torch.Generator]:
    return [generator("bench", "rollout", row) for row in range(s.batch)]


def ours(s: Setting) -> Measured:
    network, canvas = policy(s), group(s, "ours")

    def run(steps: int) -> Tensor:
        config = SamplerConfig(name="emerge", steps=steps, cfg_scale=s.cfg_scale)
        return sample(network, canvas, config, generators(s)).canvas.tokens

    return timed(s, canvas, run)


def straightforward(s: Setting) -> Measured:
    """As MaskGRPO's `t2i_generate_emerge` does it, with other random numbers."""
    network, canvas = policy(s), group(s, "straightforward")
    return timed(s, canvas, lambda steps: every_step(s, network, canvas, steps))


def timed(s: Setting, canvas: Canvas, run: Callable[[int], Tensor]) -> Measured:
    """Image tokens per second of the fastest repeat, after a warm-up of one step; the codes."""
    run(1)
    seconds = []
    for _ in range(s.repeats):
        started = time.perf_counter()
        tokens = run(s.steps)
        seconds.append(time.perf_counter() - started)
    codes = tokens[canvas.response].view(s.batch, -1) - canvas.vocab[0]
    return s.batch * s.grid**2 / min(seconds), codes.tolist()


@torch.no_grad()
def every_step(s: Setting, network: Any, canvas: Canvas, steps: int) -> Tensor:
    tokens, first = canvas.tokens.clone(), int(canvas.response[0].int().argmax())
    image = slice(first, first + s.grid**2)
    seeds = row_seeds(generators(s), s.batch)
    both = None if canvas.attend is None else torch.cat((canvas.attend, canvas.uncond_attend))
    for step in range(steps):
        masked = canvas.response & (tokens == canvas.mask_id)
        state = State(step, steps, "cosine", 1.0, canvas.response, masked, seeds)
        twin = torch.where(canvas.response, tokens, canvas.uncond_tokens)
        logits = network.model(torch.cat((tokens, twin)), attention_mask=both).logits
        conditional, unconditional = logits[:, image, slice(*canvas.vocab)].chunk(2)
        guided = (1 + s.cfg_scale) * conditional - s.cfg_scale * unconditional
        drawn = categorical(
            guided.softmax(-1).flatten(0, 1), state.uniform("token")[:, image].flatten()
        )
        written = emerge.candidates(state)[:, image]
        drawn = drawn.view_as(written) + canvas.vocab[0]
        tokens[:, image] = torch.where(written, drawn, tokens[:, image])
    return tokens


def quality(ours: list[list[int]], other: list[list[int]]) -> dict[str, Any]:
    equal = torch.tensor(ours) == torch.tensor(other)
    return {"same_canvases": bool(equal.all()), "same_tokens": float(equal.float().mean())}


if __name__ == "__main__":
    compare("rollout", {"ours": ours, "straightforward": straightforward}, quality)
