"""Rollout of one group of images: from the same uniforms two ways write the same canvases.

    python scripts/bench/rollout.py repeats=1
    python scripts/bench/rollout.py mask_policy=ignore width=64 layers=2

Prints one JSON line.
"""

import sys
from collections.abc import Callable
from typing import Any

from setting import Measured, Setting, compare, fastest, group, policy

from mmrl.config.command import Usage, read_settings

if __name__ == "__main__":  # before the seconds that torch takes
    read_settings(Usage("python scripts/bench/rollout.py", __doc__, Setting), sys.argv[1:])

import torch  # noqa: E402
from torch import Tensor  # noqa: E402

from mmrl.positions import Positions  # noqa: E402
from mmrl.randomness import generator  # noqa: E402
from mmrl.samplers import SamplerConfig, emerge, sample  # noqa: E402
from mmrl.samplers.noise import Draws, categorical, row_seeds  # noqa: E402
from mmrl.samplers.rule import ResponseBlock, State  # noqa: E402
from mmrl.types import Canvas  # noqa: E402


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
    """The time of all steps, after a warm-up of one, and the codes."""
    run(1)
    seconds, cpu_seconds, tokens = fastest(lambda: run(s.steps), s.repeats)
    codes = tokens[canvas.response].view(s.batch, -1) - canvas.vocab[0]
    return seconds, cpu_seconds, codes.tolist()


@torch.no_grad()
def every_step(s: Setting, network: Any, canvas: Canvas, steps: int) -> Tensor:
    tokens, image = canvas.tokens.clone(), slice(s.text_length + 1, -1)
    config, seeds = SamplerConfig(name="emerge"), row_seeds(generators(s), s.batch)
    draws = Draws(seeds, Positions.find(canvas.response), range(steps))
    both = None if canvas.attend is None else torch.cat((canvas.attend, canvas.uncond_attend))
    for step in range(steps):
        masked = canvas.response & (tokens == canvas.mask_id)
        block = ResponseBlock(canvas.response, 0, steps)
        state = State(block, step, canvas.response, masked, draws)
        twin = torch.where(canvas.response, tokens, canvas.uncond_tokens)
        logits = network.model(torch.cat((tokens, twin)), attention_mask=both).logits
        conditional, unconditional = logits[:, image, slice(*canvas.vocab)].chunk(2)
        guided = (1 + s.cfg_scale) * conditional - s.cfg_scale * unconditional
        probs, uniforms = guided.softmax(-1).flatten(0, 1), state.uniform("token")[:, image]
        drawn = categorical(probs, uniforms.flatten()).view_as(uniforms).long() + canvas.vocab[0]
        written = emerge.candidates(state, config)[:, image]
        tokens[:, image] = torch.where(written, drawn, tokens[:, image])
    return tokens


def quality(ours: list[list[int]], other: list[list[int]]) -> dict[str, Any]:
    equal = (torch.tensor(ours) == torch.tensor(other)).float().mean().item()
    return {"same_canvases": ours == other, "same_tokens": equal}


WAYS = {"ours": ours, "straightforward": straightforward}

if __name__ == "__main__":
    compare("rollout", WAYS, quality)
