"""Log-probs of one group of images with their gradient: two ways to the same loss and gradient.

    python scripts/bench/update.py repeats=1
    python scripts/bench/update.py mask_policy=ignore width=64 layers=2

LoRA (r = 16) on all linear layers of the blocks, one unguided mask draw, ratio 1.
"""

import sys
from collections.abc import Callable
from typing import Any

from setting import Measured, Setting, compare, fastest, group, policy

from mmrl.config.command import Usage, read_settings

if __name__ == "__main__":  # before the seconds that torch takes
    read_settings(Usage("python scripts/bench/update.py", __doc__, Setting), sys.argv[1:])

import torch  # noqa: E402
from peft.tuners.lora import Linear  # noqa: E402
from torch import Tensor  # noqa: E402

from mmrl.estimators import score  # noqa: E402
from mmrl.pretrained.model_config import LoraConfig  # noqa: E402
from mmrl.randomness import generator  # noqa: E402
from mmrl.training.adapter import add_adapter  # noqa: E402
from mmrl.training.lora_layer import InPlaceLora  # noqa: E402
from mmrl.types import Canvas, Passes  # noqa: E402

LogProbs = Callable[[Any], Tensor]


def finished(s: Setting, way: str) -> tuple[Canvas, Passes]:
    """The group with random codes, and one mask draw."""
    canvas, draw = group(s, way), generator("bench", "update")
    codes = torch.randint(*canvas.vocab, (int(canvas.response.sum()),), generator=draw)
    canvas.tokens = canvas.tokens.masked_scatter(canvas.response, codes)
    hidden = torch.zeros_like(canvas.response)
    hidden[canvas.response] = torch.rand(len(codes), generator=draw) < s.mask_rate
    return canvas, Passes(hidden[None], hidden[None], hidden[None].float())


def ours(s: Setting) -> Measured:
    canvas, passes = finished(s, "ours")
    return timed(s, lambda network: score(network, canvas, passes)[0][0], passes)


def straightforward(s: Setting) -> Measured:
    """As MaskGRPO's trainer does it, on peft's own layers."""
    canvas, passes = finished(s, "straightforward")
    image, hidden = slice(s.text_length + 1, -1), passes.hidden[0]

    def logprobs(network: Any) -> Tensor:
        tokens = canvas.tokens.masked_fill(hidden, canvas.mask_id)
        logits = network.model(input_ids=tokens, attention_mask=canvas.attend).logits
        logp = logits[:, image, slice(*canvas.vocab)].log_softmax(-1)
        target = canvas.tokens[:, image, None] - canvas.vocab[0]
        return logp.gather(-1, target).squeeze(-1) * hidden[:, image]

    return timed(s, logprobs, passes, Linear)


def timed(s: Setting, logprobs: LogProbs, passes: Passes, layer: type = InPlaceLora) -> Measured:
    """The time of an update, after a warm-up, with its loss and the norm of its gradient."""
    network = policy(s)
    network.model = add_adapter(network.network, LoraConfig(r=16), seed=0)
    for module in network.model.modules():
        if isinstance(module, Linear):
            module.__class__ = layer
    advantages = torch.linspace(-1, 2, s.batch)[:, None]

    def run() -> float:
        network.model.zero_grad(set_to_none=True)
        loss = -(logprobs(network) * advantages).sum() / passes.scored.sum()
        loss.backward()
        return loss.item()

    run()
    seconds, cpu_seconds, loss = fastest(run, s.repeats)
    gradients = [p.grad.norm() for p in network.model.parameters() if p.grad is not None]
    return seconds, cpu_seconds, [loss, torch.stack(gradients).norm().item()]


def quality(ours: list[float], other: list[float]) -> dict[str, Any]:
    difference = abs(ours[0] - other[0])
    return {"loss_difference": difference, "gradient_norms": (ours[1], other[1])}


WAYS = {"ours": ours, "straightforward": straightforward}

if __name__ == "__main__":
    compare("update", WAYS, quality)
