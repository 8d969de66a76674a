"""A tiny Stable Diffusion 3.5, and what public codes compute from it.

`tests/fixtures/flow_sd3/pipeline` is a directory of diffusers with random weights, that has what
SD3.5 medium has beside SD3; `lora` is an adapter of peft on it. In `cases.safetensors` are text
encodings, rollouts, images, log-probs and gradients by diffusers 0.42.0, zhtmike/flow_grpo@9745241
and Tencent-Hunyuan/UniRL@1a7b501e, all in float32 on the CPU. Their noise follows from a seed.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Generator, Tensor

from mmrl.models import Policy, load_policy
from mmrl.types import Prompt
from tests.models.networks import FIXTURES

FOLDER = FIXTURES / "flow_sd3"
PIPELINE = FOLDER / "pipeline"
TEXTS = ("a red cat on the table", "The dog, asleep")
LENGTH = 32
"""Tokens of T5."""


def load_cases() -> dict[str, Tensor]:
    """Numbers of the public codes; latents are [B, S + 1, channels, height, width]."""
    return load_file(FOLDER / "cases.safetensors")


def load_sd3(path: Path = PIPELINE, **options: Any) -> Policy:
    """The tiny policy."""
    return load_policy(path, max_prompt_length=LENGTH, **options)


def copy_pipeline(directory: Path) -> Path:
    """A copy of the pipeline that a test may change."""
    return Path(shutil.copytree(PIPELINE, directory))


def ask(*texts: str, **metadata: Any) -> list[Prompt]:
    """Prompts for images; `metadata` of each, such as height and width."""
    return [
        Prompt(id=str(n), task="text_to_image", text=text, metadata=metadata)
        for n, text in enumerate(texts)
    ]


def public_noise(seed: int, start: Tensor) -> Any:
    """What stands for `mmrl.generation.flow.sampler.draw_noise`: the start [B, …] of the public
    codes, and the draws that they make in all five steps, used or not."""
    source = Generator().manual_seed(seed)
    drawn = [torch.randn(start.shape, generator=source) for _ in range(5)]

    def draw(seeds: Any, purpose: str | int, *_: Any) -> Tensor:
        return (start if isinstance(purpose, str) else drawn[purpose]).flatten(1)

    return draw


def scatter(policy: Policy, size: float, seed: int) -> None:
    """Add normal draws of a size to all weights, in the order of their names."""
    source = Generator().manual_seed(seed)
    with torch.no_grad():
        for _, each in sorted(policy.network.named_parameters()):
            each.add_(size * torch.randn(each.shape, generator=source))


def draw_pipeline(folder: Path, write: Any, size: float, length: int) -> Path:
    """A pipeline of random weights, all of which matter, as a policy saves it.

    Args:
        folder: to write it into.
        write: of `scripts/pipeline_skeletons.py`.
        size: of the draws that weights are moved by.
        length: tokens of a text.
    """
    torch.manual_seed(0)
    write(folder / "drawn", width=128, layers=1)
    policy = load_policy(folder / "drawn", max_prompt_length=length)
    scatter(policy, size, 1)
    policy.save(folder / "moved", "float32")
    return folder / "moved"


def seeded(numbers: Sequence[int]) -> list[Generator]:
    """A generator for each row."""
    return [Generator().manual_seed(number) for number in numbers]


def count_calls(kind: Any, calls: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Note the name of a class at each forward pass."""
    forward = kind.forward

    def counted(self: Any, *arguments: Any, **named: Any) -> Any:
        calls.append(kind.__name__)
        return forward(self, *arguments, **named)

    monkeypatch.setattr(kind, "forward", counted)
