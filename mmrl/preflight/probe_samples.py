"""A few samples to try rewards on: recorded by a run, or else stand-ins made from the data."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from PIL import Image

from mmrl.config import ConfigError
from mmrl.data.prompts import spread
from mmrl.randomness import generator
from mmrl.types import Chunk, Cutting, Prompt, Sample
from models.task import writes_images


@dataclass
class Handful:
    """Samples, and where they are from.

    Attributes:
        samples: what rewards score.
        source: in words.
        telling: whether a reward that varies would give them different scores: blank pictures and
            noise are all equally wrong to one that looks for what the prompt asks for.
    """

    samples: list[Sample]
    source: str
    telling: bool = True

    def cut(self, cutting: Cutting | None) -> list[Sample]:
        """The samples, cut at words where rewards judge chunks: no tokens are recorded."""
        if cutting is None:
            return self.samples
        return [
            replace(sample, chunks=tuple(_pieces(sample.completion, cutting.size)))
            for sample in self.samples
            if isinstance(sample.completion, str)
        ]


def find_recorded(place: Path, task: str) -> Path | None:
    """The newest completions of a task; None where there are none.

    Args:
        place: a parquet as `mmrl.training.completions` writes it, a folder of them, or a run
            directory.
        task: name of the task.
    """
    if place.is_file():
        return place
    start = f"completions_{task}_"
    steps = {
        path: path.stem.removeprefix(start)
        for folder in (place / "samples", place)
        for path in folder.glob(f"{start}*.parquet")
    }
    found = [path for path, step in steps.items() if step.isdigit()]
    return max(found, key=lambda path: int(steps[path]), default=None)


def recorded(path: Path, prompts: Sequence[Prompt], count: int) -> Handful | None:
    """Completions that a run wrote, with the metadata of their prompts; None where it has none of
    these prompts.

    Args:
        path: the parquet.
        prompts: of the task; rows of other prompts are left out.
        count: how many are taken, spread over the rows.

    Raises:
        ConfigError: it cannot be read.
    """
    import pyarrow
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
        keys = [name for name in ("id", "prompt") if name in table.column_names]
        named = table.select(keys).to_pylist()
        known = _by_name(prompts)
        places = [(n, known.get((row.get("id"), row["prompt"]))) for n, row in enumerate(named)]
        found = [(n, prompt) for n, prompt in places if prompt is not None]
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
    return Handful(samples, f"{len(samples)} samples of {path}")


def _by_name(prompts: Sequence[Prompt]) -> Mapping[tuple[str | None, str], Prompt]:
    """Prompts by id and text, and by text alone where it says which is meant."""
    named: dict[tuple[str | None, str], Prompt] = {(p.id, p.text): p for p in prompts}
    alone: dict[tuple[str | None, str], Prompt] = {}
    unclear = set()
    for prompt in prompts:
        other = alone.setdefault((None, prompt.text), prompt)
        if (other.facts, other.images) != (prompt.facts, prompt.images):
            unclear.add((None, prompt.text))
    return {**{key: p for key, p in alone.items() if key not in unclear}, **named}


def _completion(stored: Any) -> str | Image.Image:
    if isinstance(stored, str):
        return stored
    with Image.open(io.BytesIO(stored["bytes"])) as image:
        image.load()
        return image


def stand_ins(task: str, prompts: Sequence[Prompt], count: int, side: int | None) -> Handful:
    """Completions nobody sampled: blank ones and noise as pictures; as texts blank ones first, then
    answers of the data, right and of other prompts, bare, tagged and boxed.

    Args:
        task: layout of the prompts.
        prompts: of the task.
        count: how many.
        side: of pictures in pixels; None takes 256.
    """
    chosen = spread(prompts, count) if prompts else []
    samples = []
    for n in range(count if chosen else 0):
        prompt, other = (chosen[place % len(chosen)] for place in (n, n + 1))
        drawn = writes_images(task)
        completion = _picture(n, side or 256) if drawn else _text(n, prompt, other)
        samples.append(Sample.of(prompt, completion))
    source = f"{len(samples)} stand-ins, which no policy made"
    return Handful(samples, source, telling=not writes_images(task))


def _picture(n: int, side: int) -> Image.Image:
    if n % 2 == 0:
        return Image.new("RGB", (side, side), ("white", "black", "red", "blue")[n // 2 % 4])
    noise = torch.randint(0, 256, (side, side, 3), generator=generator("probe", n))
    return Image.fromarray(noise.to(torch.uint8).numpy())


def _text(n: int, prompt: Prompt, other: Prompt) -> str:
    answer = str((prompt if n % 2 == 0 else other).answer or prompt.text)
    forms = ("", answer, f"<answer>{answer}</answer>", f"\\boxed{{{answer}}}")
    return forms[n // 2 % len(forms)]


def _pieces(text: str, size: int) -> Iterator[Chunk]:
    words, before = text.split(" "), ""
    for first in range(0, len(words), size):
        own = " ".join(words[first : first + size])
        own = f" {own}" if first else own
        if own.strip():
            yield Chunk(first, before, own)
        before += own
