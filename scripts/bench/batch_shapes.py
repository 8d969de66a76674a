"""Share of tokens that the size of a batch changes, by the dtype of the weights.

    python scripts/bench/batch_shapes.py device=cpu
    python scripts/bench/batch_shapes.py sizes=[64,1] prompts=256 dtypes=[bfloat16]

Matrix products sum in another order for another number of rows, so a draw that falls within
rounding of a boundary gives another token, which all later steps of that canvas see. A JSON line
for each dtype and each size after the first: the share of tokens and of canvases that differ from
those of the first size.
"""

import sys
from dataclasses import dataclass, field

from mmrl.config.command import Usage, read_settings


@dataclass(kw_only=True)
class Config:
    """Sizes; `key=value` on the command line changes them."""

    model: str = "datasets/shapes/checkpoints/mmada"
    """The policy."""
    vq: str = "datasets/shapes/checkpoints/magvit"
    """Its image tokenizer."""
    data: str = "datasets/shapes/test.jsonl"
    """Prompt file."""
    prompts: int = 64
    """How many of its prompts."""
    steps: int = 12
    """Denoising steps."""
    temperature: float = 1.0
    """Of the draws."""
    sizes: list[int] = field(default_factory=lambda: [64, 16, 1])
    """Rows sampled at once; the others are compared with the first."""
    device: str = "auto"
    """Where; `auto` takes the GPU if there is one."""
    dtypes: list[str] = field(default_factory=lambda: ["float64", "float32", "bfloat16"])
    """Of the weights."""


if __name__ == "__main__":  # before the seconds that torch takes
    SETTING = read_settings(
        Usage("python scripts/bench/batch_shapes.py", __doc__, Config), sys.argv[1:]
    )

import torch  # noqa: E402
from results import circumstances, report  # noqa: E402
from torch import Tensor  # noqa: E402

from mmrl.data.prompts import load_prompts  # noqa: E402
from mmrl.models import Policy, load_policy  # noqa: E402
from mmrl.randomness import generator  # noqa: E402
from mmrl.runtime.device import find_device  # noqa: E402
from mmrl.samplers import SamplerConfig, sample  # noqa: E402
from mmrl.types import Prompt  # noqa: E402


def written(policy: Policy, prompts: list[Prompt], size: int, s: Config) -> Tensor:
    """[P, n] tokens of a completion of each prompt, sampled `size` at a time."""
    config, parts = SamplerConfig(name="emerge", steps=s.steps, temperature=s.temperature), []
    for first in range(0, len(prompts), size):
        some = prompts[first : first + size]
        draws = [generator("bench", "batch", prompt.id) for prompt in some]
        canvas = sample(policy, policy.canvas(some), config, draws).canvas
        parts.append(canvas.tokens[canvas.response].view(len(some), -1))
    return torch.cat(parts).cpu()


def compare(s: Config) -> list[dict[str, object]]:
    """A result for each dtype and size after the first."""
    device, lines = find_device(s.device), []
    prompts = load_prompts(s.data, "text_to_image")[: s.prompts]
    for dtype in s.dtypes:
        policy = load_policy(s.model, s.vq, dtype=dtype, device=device)
        first, *others = (written(policy, prompts, size, s) for size in s.sizes)
        for size, other in zip(s.sizes[1:], others, strict=True):
            changed = first != other
            lines.append(
                {
                    "dtype": dtype,
                    "sizes": [s.sizes[0], size],
                    "tokens": changed.float().mean().item(),
                    "canvases": changed.any(1).float().mean().item(),
                }
            )
    return lines


if __name__ == "__main__":
    for line in compare(SETTING):
        report({"bench": "batch_shapes", **line, **circumstances()})
