"""Samples to score with rewards before a run: recorded by another run, or dummy samples."""

import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch
from PIL import Image

from mmrl.config import ConfigError
from mmrl.data.prompts import spread
from mmrl.models.task_names import writes_images
from mmrl.randomness import generator
from mmrl.run.sample_files import ROLLOUTS, find_samples, samples_of
from mmrl.types import Chunk, Prompt, Sample

FEW = 2
"""Dummy samples of a dry run, which is to take seconds."""


class ProbeSamples(NamedTuple):
    """Samples and where they come from.

    `distinct`: whether a reward that varies would score them differently. Blank images and noise
    are equally wrong to a reward that looks for the content of the prompt.
    """

    samples: list[Sample]
    source: str
    distinct: bool = True


def find_recorded(place: Path, task: str) -> Path | None:
    """The newest completions of a task; None where there are none.

    Args:
        place: a parquet as `mmrl.training.completions` writes it, a folder of them, or a run
            directory.
        task: name of the task.
    """
    if place.is_file():
        return place
    folder = samples_of(place) if samples_of(place).is_dir() else place
    by_step = find_samples(folder, ROLLOUTS).get(task)
    return by_step[max(by_step)] if by_step else None


def read_recorded(path: Path, prompts: Sequence[Prompt], count: int) -> ProbeSamples | None:
    """Completions that a run wrote, with the metadata of their prompts: at most `count`, spread
    over the rows, and None where there is none of these prompts.

    Raises:
        ConfigError: the file cannot be read.
    """
    import pyarrow
    import pyarrow.parquet as pq

    by_name = {(prompt.id, prompt.text): prompt for prompt in prompts}
    try:
        table = pq.read_table(path, columns=["id", "prompt", "completion"])
        names = [(row["id"], row["prompt"]) for row in table.drop("completion").to_pylist()]
    except (pyarrow.ArrowException, OSError, KeyError) as error:
        raise ConfigError(f"'{path}' holds no completions of a run ({error}).") from error
    samples = []
    for place in spread([n for n, name in enumerate(names) if name in by_name], count):
        stored = table["completion"][place].as_py()
        if not isinstance(stored, str):
            stored = Image.open(io.BytesIO(stored["bytes"]))
            stored.load()
        samples.append(Sample.of(by_name[names[place]], stored))
    return ProbeSamples(samples, f"{len(samples)} recorded samples of {path}") if samples else None


def make_dummy_samples(
    task: str, prompts: Sequence[Prompt], count: int, side: int | None
) -> ProbeSamples:
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
    distinct = not images and count > FEW  # a blank and a right text may both score 0
    return ProbeSamples(samples, f"{len(samples)} dummy samples", distinct)


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
