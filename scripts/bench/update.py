"""Log-probs of one group of images with their gradient: `mmrl.estimators` and the plain way.

    python scripts/bench/update.py [mask_policy=ignore] [width=64 layers=2 …]

As in the 8B configurations the base is frozen and LoRA adapters (here r = 16) sit on all linear
layers of the blocks; masks are MaskGRPO's at `mask_rate`, one draw, scored without guidance. The
loss is the policy gradient at ratio 1. Both ways must give the same loss and gradient.
"""

import time
from collections.abc import Callable
from typing import Any

import torch
from setting import Measured, Setting, compare, group, policy
from torch import Tensor

from mmrl.adapter import LoraSettings, add_adapter
from mmrl.estimators import score
from mmrl.randomness import generator
from mmrl.types import Canvas, Passes


def finished(s: Setting, way: str) -> tuple[Canvas, Passes]:
    """The group with random codes, and one mask draw."""
    canvas, draw = group(s, way), generator("bench", "update")
    response = canvas.response
    codes = torch.randint(*canvas.vocab, (int(response.sum()),), generator=draw)
    canvas.tokens = canvas.tokens.masked_scatter(response, codes)
    hidden = torch.zeros_like(response)
    hidden[response] = torch.rand(len(codes), generator=draw) < s.mask_rate
    return canvas, Passes(hidden[None], hidden[None], hidden[None].float())


def ours(s: Setting) -> Measured:
    canvas, passes = finished(s, "ours")
    return timed(s, lambda network: score(network, canvas, passes)[0][0], passes)


def straightforward(s: Setting) -> Measured:
    """As MaskGRPO's trainer does it."""
    canvas, passes = finished(s, "straightforward")
    first, last = int(canvas.response[0].int().argmax()), s.grid**2
    image, hidden = slice(first, first + last), passes.hidden[0]

    def logprobs(network: Any) -> Tensor:
        tokens = canvas.tokens.masked_fill(hidden, canvas.mask_id)
        logits = network.model(input_ids=tokens, attention_mask=canvas.attend).logits
        logp = logits[:, image, slice(*canvas.vocab)].log_softmax(-1)
        target = canvas.tokens[:, image, None] - canvas.vocab[0]
        return logp.gather(-1, target).squeeze(-1) * hidden[:, image]

    return timed(s, logprobs, passes)


def timed(s: Setting, logprobs: Callable[[Any], Tensor], passes: Passes) -> Measured:
    """Image tokens per second of the fastest repeat after a warm-up; loss and gradient norm."""
    network = policy(s)
    network.model = add_adapter(network.network, LoraSettings(r=16), seed=0)
    advantages = torch.linspace(-1, 2, s.batch)[:, None]
    seconds = []
    for _ in range(s.repeats + 1):
        network.model.zero_grad(set_to_none=True)
        started = time.perf_counter()
        loss = -(logprobs(network) * advantages).sum() / passes.scored.sum()
        loss.backward()
        seconds.append(time.perf_counter() - started)
    gradients = [p.grad.norm() for p in network.model.parameters() if p.grad is not None]
    values = [loss.item(), torch.stack(gradients).norm().item()]
    return s.batch * s.grid**2 / min(seconds[1:]), values


def quality(ours: list[float], other: list[float]) -> dict[str, Any]:
    difference, norms = abs(ours[0] - other[0]), (ours[1], other[1])
    return {"loss_difference": difference, "gradient_norms": norms, "same": difference < 1e-4}


if __name__ == "__main__":
    compare("update", {"ours": ours, "straightforward": straightforward}, quality)
