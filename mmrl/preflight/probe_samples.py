"""Samples to score with rewards before a run: recorded by another run, or dummy samples."""

import io
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from PIL import Image

from mmrl.config import ConfigError
from mmrl.data.prompts import spread
from mmrl.models.task_names import writes_images
from mmrl.preflight.probe_config import FEW
from mmrl.randomness import generator
from mmrl.run.sample_files import ROLLOUTS, find_samples, samples_of
from mmrl.types import Chunk, Prompt, Sample


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
    """Completions that a run wrote, with the metadata of their prompts.

    Args:
        path: the parquet.
        prompts: of the task; rows of other prompts are left out.
        count: how many are taken, spread over the rows.

    Returns:
        None where the file has no completion of these prompts.

    Raises:
        ConfigError: it cannot be read.
    """
    import pyarrow
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
        by_name = {(prompt.id, prompt.text): prompt for prompt in prompts}
        found = [
            (n, by_name[name])
            for n, row in enumerate(table.select(["id", "prompt"]).to_pylist())
            if (name := (row["id"], row["prompt"])) in by_name
        ]
        if not found:
            return None
        chosen = spread(found, count)
        rows = table.select(["completion"]).take([n for n, _ in chosen]).to_pylist()
    except (pyarrow.ArrowException, OSError, KeyError) as error:
        raise ConfigError(f"'{path}' holds no completions of a run ({error}).") from error
    samples = [
        Sample.of(prompt, _completion(row["completion"]))
        for (_, prompt), row in zip(chosen, rows, strict=True)
    ]
    return ProbeSamples(samples, f"{len(samples)} recorded samples of {path}")


def _completion(stored: Any) -> str | Image.Image:
    if isinstance(stored, str):
        return stored
    with Image.open(io.BytesIO(stored["bytes"])) as image:
        image.load()
        return image


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


def cut_at_words(samples: Sequence[Sample], size: int) -> list[Sample]:
    """The texts among samples, cut into chunks of `size` words, as their tokens are not known."""
    return [
        replace(sample, chunks=tuple(_chunks(sample.completion, size)))
        for sample in samples
        if isinstance(sample.completion, str)
    ]


def _chunks(text: str, size: int) -> Iterator[Chunk]:
    words, before = text.split(" "), ""
    for first in range(0, len(words), size):
        own = " ".join(words[first : first + size])
        own = f" {own}" if first else own
        if own.strip():
            yield Chunk(first, before, own)
        before += own
