"""Rollout and update of one group of images, beside the straightforward way.

    python scripts/bench/rollout_update.py repeats=2
    python scripts/make_skeleton.py family=mmada out=runs/bench/mmada layers=8 width=512
    python scripts/make_skeleton.py family=magvitv2 out=runs/bench/vq width=32
    python scripts/bench/rollout_update.py model=runs/bench/mmada vq=runs/bench/vq image_size=256

Straightforward is what public code does: logits of every position over the whole vocabulary, all of
them at once, on rows that keep their padding. Two JSON lines with seconds and peak memory of both
and their ratios. From the same random numbers both write the same canvases; the update (LoRA on all
layers, one draw of masks, ratio 1) has the same `results`: loss and norm of the gradient.
"""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mmrl.config.command import Usage, read_settings


@dataclass(kw_only=True)
class Setting:
    """Sizes; `key=value` on the command line changes them."""

    model: str = "datasets/shapes/checkpoints/mmada"
    """Checkpoint that draws images, such as a skeleton of public vocabulary."""
    vq: str = "datasets/shapes/checkpoints/magvit"
    """Its image tokenizer."""
    image_size: int | None = None
    """Side of an image in pixels; null for the checkpoint's."""
    max_prompt_length: int = 256
    """Tokens that the straightforward way pads the prompt to."""
    batch: int = 4
    """Rows of the group."""
    steps: int = 12
    """Denoising steps."""
    repeats: int = 1
    """The fastest of so many counts."""
    device: str = "cpu"
    """Where the network runs."""


if __name__ == "__main__":  # before the seconds that torch takes
    USAGE = Usage("python scripts/bench/rollout_update.py", __doc__, Setting)
    SETTING = read_settings(USAGE, sys.argv[1:])

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from text_sampling import fastest, report  # noqa: E402
from torch import Tensor, nn  # noqa: E402

from mmrl.estimators import score  # noqa: E402
from mmrl.generation.masked.canvas import MaskedCanvas  # noqa: E402
from mmrl.generation.masked.hidden import Hidden  # noqa: E402
from mmrl.models import load_policy  # noqa: E402
from mmrl.models.network.token_network import LMOutput  # noqa: E402
from mmrl.pretrained.model_config import LoraConfig  # noqa: E402
from mmrl.randomness import generator  # noqa: E402
from mmrl.samplers import SamplerConfig, sample  # noqa: E402
from mmrl.training.adapter import add_adapter  # noqa: E402
from mmrl.types import Passes, Prompt  # noqa: E402


class EverythingEverywhere(nn.Module):
    """Calls a network on whole rows, with columns of padding before them, and selects from all
    logits; takes the place of `policy.model`."""

    def __init__(self, inner: nn.Module, padding: int) -> None:
        super().__init__()
        self.inner, self.padding = inner, padding

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        positions: Tensor | None = None,
        columns: tuple[int, int] | None = None,
        **others: Any,
    ) -> LMOutput:
        """Arguments and result of `MaskedTokenModel.forward`."""
        if self.padding:
            mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
            attention_mask, input_ids = (F.pad(x, (self.padding, 0)) for x in (mask, input_ids))
        found = self.inner(input_ids=input_ids, attention_mask=attention_mask, **others)
        logits = found.logits[:, self.padding :, slice(*columns or (0, None))]
        return LMOutput(logits if positions is None else logits[positions])


def roll_out(s: Setting, policy: Any, canvas: MaskedCanvas) -> MaskedCanvas:
    """The group, written."""
    config = SamplerConfig(name="emerge", steps=s.steps, cfg_scale=3.5)
    return sample(policy, canvas, config, [generator("bench", n) for n in range(s.batch)]).canvas


def update(policy: Any, canvas: MaskedCanvas, passes: Passes) -> tuple[float, float]:
    """Loss of a group with fixed advantages, and the norm of its gradient."""
    policy.model.zero_grad(set_to_none=True)
    advantages = torch.linspace(-1, 2, len(canvas.tokens), device=canvas.tokens.device)[:, None]
    logprobs = score(policy, canvas, passes).logprobs[0]
    loss = -(logprobs * advantages).sum() / passes.scored.sum()
    loss.backward()
    found = [p.grad.norm() for p in policy.model.parameters() if p.grad is not None]
    return loss.item(), torch.stack(found).norm().item()


def peak_mb(device: str) -> float:
    """Most memory since the last call: of an accelerator, or resident in this process."""
    if device != "cpu":
        peak = torch.accelerator.max_memory_allocated() / 2**20
        torch.accelerator.reset_peak_memory_stats()
        return peak
    status = Path("/proc/self/status").read_text()
    Path("/proc/self/clear_refs").write_text("5")  # forgets the peak
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def compare(s: Setting, policy: Any, padding: int, work: Callable[[], Any]) -> dict[str, Any]:
    """Seconds, peak memory and results of ours and of the straightforward way."""
    model, found = policy.model, []
    for plain in (False, True):
        policy.model = EverythingEverywhere(model, padding) if plain else model
        policy.network.can_reduce = not plain
        peak_mb(s.device)
        found.append((*fastest(work, s.repeats), peak_mb(s.device)))
    policy.model, (seconds, results, peaks) = model, zip(*found, strict=True)
    ratios = {"ratio": seconds[1] / seconds[0], "peak_share": peaks[0] / peaks[1]}
    return {"seconds": seconds, "peak_mb": peaks, **ratios, "results": results}


def measure(s: Setting) -> Iterator[dict[str, Any]]:
    """The line of the rollout, then that of the update."""
    sizes = {"image_size": s.image_size, "max_prompt_length": s.max_prompt_length}
    policy = load_policy(s.model, s.vq, device=s.device, **sizes)
    prompt = Prompt(text="two red circles", id="a", task="text_to_image")
    canvas = policy.canvas([prompt] * s.batch)
    padding = max(0, s.max_prompt_length + 1 - int(canvas.response[0].byte().argmax()))
    line = compare(s, policy, padding, lambda: roll_out(s, policy, canvas))
    ours, other = line.pop("results")
    same = (ours.tokens == other.tokens).double().mean().item()
    yield {"what": "rollout", **line, "same_tokens": same}
    draw = torch.rand(canvas.tokens.shape, generator=generator("bench", "update"))
    hidden = canvas.response & (draw < 0.8).to(s.device)
    passes = Passes(Hidden(hidden[None]), hidden[None], hidden[None].float())
    policy.model = add_adapter(policy.network, LoraConfig(r=16), seed=0)
    yield {"what": "update", **compare(s, policy, padding, lambda: update(policy, ours, passes))}


if __name__ == "__main__":
    for result in measure(SETTING):
        report("rollout_update", SETTING, result)
