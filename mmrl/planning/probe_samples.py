"""Dummy samples to score with rewards before a run."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from PIL import Image

from mmrl.data.prompts import spread
from mmrl.models.task_names import writes_images
from mmrl.randomness import generator
from mmrl.types import Chunk, Prompt, Sample

FEW = 2
"""Dummy samples of a dry run, which is to take seconds."""


def make_dummy_samples(
    task: str, prompts: Sequence[Prompt], count: int, side: int | None
) -> list[Sample]:
    """Completions that no policy sampled.

    Images are blank or noise. Texts are blank or answers of the data, bare, tagged and boxed: first
    those of the prompt, then of another.

    Args:
        task: layout of the prompts.
        prompts: of the task.
        count: how many.
        side: of images in pixels; None takes 256.
    """
    chosen, images, samples = spread(prompts, count) if prompts else [], writes_images(task), []
    for n in range(count if chosen else 0):
        prompt, other = (chosen[place % len(chosen)] for place in (n, n + 1))
        completion = _image(n, side or 256) if images else _text(n, prompt, other)
        samples.append(Sample.of(prompt, completion))
    return samples


def _image(n: int, side: int) -> Image.Image:
    if n % 2 == 0:
        return Image.new("RGB", (side, side), ("white", "black", "red", "blue")[n // 2 % 4])
    noise = torch.randint(0, 256, (side, side, 3), generator=generator("probe", n))
    return Image.fromarray(noise.to(torch.uint8).numpy())


def _text(n: int, prompt: Prompt, other: Prompt) -> str:
    answer = str((other if n // 4 % 2 else prompt).answer or prompt.text)
    forms = ("", answer, f"<answer>{answer}</answer>", f"\\boxed{{{answer}}}")
    return prompt.prefill + forms[n % len(forms)]


def cut_at_words(sample: Sample, size: int) -> Sample:
    """A text, cut into chunks of `size` words, as its tokens are not known."""
    words, before, chunks = str(sample.completion).split(" "), "", []
    for first in range(0, len(words), size):
        own = " " * bool(first) + " ".join(words[first : first + size])
        if own.strip():
            chunks.append(Chunk(first, before, own))
        before += own
    return replace(sample, chunks=tuple(chunks))
