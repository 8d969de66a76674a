"""Prompts with images that a causal model continues, as the processor of its checkpoint makes them.

A prompt is its messages through the chat template, image parts included; every placeholder that the
template writes for an image becomes as many as the image has tokens, patches / merge_size^2.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from PIL import Image
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from mmrl.config import check
from mmrl.generation.causal.images import ImageTensors
from mmrl.models.layouts.chat_templates import render_chat
from mmrl.models.layouts.image_marks import MARK, check_images, render
from mmrl.models.layouts.layout_config import LayoutOptions
from mmrl.models.layouts.question_layout import Album, QuestionLayout, Row
from mmrl.models.layouts.text_layout import CausalText
from mmrl.models.source import find_whole
from mmrl.types import Prompt

PROCESSOR = ("preprocessor_config.json", "processor_config.json")
"""Files that say how images become pixels; one is enough."""
QWEN = "Qwen2VLImageProcessor"
"""Name of the image processor of Qwen2.5-VL and Qwen3-VL."""
LONGEST = 200
"""Largest ratio of the sides of an image that the processor takes."""
TRIAL = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "a question"}]}]


@dataclass(frozen=True)
class ImageReader:
    """transformers' image processor of a checkpoint."""

    processor: Any

    @property
    def most_rows(self) -> int:
        """Tokens of an image of the size that takes the most."""
        side = self.processor.patch_size * self.processor.merge_size
        return self.processor.size["longest_edge"] // side**2

    def rows(self, width: int, height: int) -> int:
        """Tokens of an image of this size."""
        patches = self.processor.get_number_of_image_patches(height, width)
        return patches // self.processor.merge_size**2

    def read(self, image: Image.Image) -> tuple[Tensor, tuple[int, ...]]:
        """Pixels [patches, D] of an image, and its patches over time, height and width."""
        found = self.processor(images=[image], return_tensors="pt")
        return found["pixel_values"], tuple(found["image_grid_thw"][0].tolist())


def load_reader(directory: Path, options: LayoutOptions) -> ImageReader:
    """The image processor of a checkpoint directory, for an adapter without one that of its base.
    No code of it is run, and torchvision is not needed. Raises FileNotFoundError: it has none.
    Raises ValueError: it cannot be read, is another than Qwen-VL's, or `min_pixels` is above
    `max_pixels`."""
    from transformers import AutoImageProcessor

    if not _has_processor(directory):
        directory = find_whole(directory)
    if not _has_processor(directory):
        raise FileNotFoundError(
            f"'{directory}' holds no {PROCESSOR[0]}, which says how images become pixels; copy or"
            " download it from the checkpoint that this one comes from"
        )
    load = AutoImageProcessor.from_pretrained
    try:
        processor: Any = load(directory, backend="pil", trust_remote_code=False)
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"{PROCESSOR[0]} cannot be read: {error}") from error
    kind = type(processor).__name__
    if not kind.startswith(QWEN):
        raise ValueError(f"{PROCESSOR[0]}: image_processor_type is {kind!r}; allowed: {QWEN}")
    least = options.min_pixels or processor.size["shortest_edge"]
    most = options.max_pixels or processor.size["longest_edge"]
    check(least <= most, "min_pixels", least, f"at most max_pixels, {most}")
    processor.size = {"shortest_edge": least, "longest_edge": most}
    return ImageReader(processor)


def outline_reader(tower: Mapping[str, Any], options: LayoutOptions) -> ImageReader:
    """The image processor of a published checkpoint whose files are not here, from the sizes of its
    tower; what `options` leave out are transformers' limits."""
    from transformers import Qwen2VLImageProcessorPil

    keys = {"patch_size": "patch_size", "merge_size": "spatial_merge_size"}
    processor = Qwen2VLImageProcessorPil(**{n: tower[k] for n, k in keys.items() if k in tower})
    limits = {"shortest_edge": options.min_pixels, "longest_edge": options.max_pixels}
    stated = {key: value for key, value in limits.items() if value is not None}
    processor.size = {**dict(processor.size), **stated}
    return ImageReader(processor)


def _has_processor(directory: Path) -> bool:
    return any((directory / name).is_file() for name in PROCESSOR)


def check_template(tokenizer: PreTrainedTokenizerBase, mark: str, chosen: Any) -> None:
    """Raise a ConfigError unless the chat template, the `chosen` one or the tokenizer's own, writes
    one placeholder for an image part."""
    try:
        said = render_chat(tokenizer, TRIAL, "a trial").count(mark)
    except ValueError:
        said = 0
    allowed = f"the path of a template that writes {mark} once for an image part"
    advice = f"{'This one' if chosen else 'That of the tokenizer'} writes it {said} times."
    check(said == 1, "chat_template", chosen, allowed, advice)


@dataclass(frozen=True)
class CausalImages(QuestionLayout):
    """Renders prompts with images for a causal model; `image_id` is the placeholder of images."""

    needs_tower: ClassVar[bool] = True
    text: CausalText
    image_id: int
    reader: ImageReader
    max_length: int | None = None

    @staticmethod
    def check(prompt: Prompt) -> None:
        """Raise a ValueError unless a prompt has images, a mark for each or none, and none of them
        is much longer than wide."""
        check_images(prompt)
        for width, height in prompt.image_sizes:
            if max(width, height) > LONGEST * min(width, height):
                raise ValueError(
                    f"prompt {prompt.id!r} has an image of {width} x {height} pixels; this"
                    f" checkpoint reads images whose sides differ at most {LONGEST} times. Cut it."
                )

    @property
    def ids(self) -> Mapping[str, int]:  # type: ignore[override]
        return self.text.ids

    @property
    def banned(self) -> tuple[int, ...]:
        return self.text.banned

    def pieces(self, prompt: Prompt) -> list[list[int]]:
        """Token ids of the text before, between and after the images of a prompt. Raises
        ValueError: see `check`; also another number of placeholders than of images."""
        self.check(prompt)
        tokenizer, images = self.text.tokenizer, prompt.images or ()
        mark = str(tokenizer.convert_ids_to_tokens(self.image_id))
        parts = render(prompt, tokenizer, show_parts).split(mark)
        if len(parts) != len(images) + 1:
            raise ValueError(
                f"prompt {prompt.id!r} has {len(images)} images and {len(parts) - 1} {mark} in its"
                " text; give an image part for each image, and leave that word out of texts"
            )
        return [list(tokenizer(part, add_special_tokens=False)["input_ids"]) for part in parts]

    def positions(self, prompt: Prompt) -> int:
        return sum(self.reader.rows(*size) for size in prompt.image_sizes)

    def album(self) -> TensorAlbum:
        return TensorAlbum(self.reader, self.image_id)


def show_parts(words: list[str | None]) -> str | list[dict[str, str]]:
    """The content of a message for the chat template: a text, or parts where it shows images, which
    are None or a mark in the words."""
    said = [MARK if part is None else part for part in words]
    if not any(MARK in part for part in said):
        return "".join(said)
    pieces = [piece for part in said for piece in re.split(f"({MARK})", part) if piece]
    return [{"type": "image"} if p == MARK else {"type": "text", "text": p} for p in pieces]


class TensorAlbum(Album):
    """Images as placeholders, each opened and made pixels once."""

    def __init__(self, reader: ImageReader, image_id: int) -> None:
        super().__init__()
        self.reader, self.image_id = reader, image_id
        self.pixels: list[Tensor] = []
        self.grids: list[tuple[int, ...]] = []

    def _show(self, image: Image.Image) -> Row:
        pixels, grid = self.reader.read(image)
        number, count = len(self.pixels), len(pixels) // self.reader.processor.merge_size**2
        self.pixels.append(pixels)
        self.grids.append(grid)
        return [self.image_id] * count, [number] * count

    def features(self, at: Tensor) -> ImageTensors | None:
        """The images of which tokens at `at` [B, L] are."""
        return ImageTensors(at, tuple(self.pixels), tuple(self.grids)) if self.pixels else None
