"""What prompts are, and what rewards see of finished completions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from PIL import Image

from mmrl.types.video import Video

Completion = str | Image.Image | Video
"""What a policy writes."""


class Chunk(NamedTuple):
    """A chunk of a response.

    `end` is its last position, counted from the end of the row, so that padding on the left moves
    nothing: -1 is the last of the row. `before` is the text of the response up to the chunk, `text`
    that of the chunk. A character whose bytes are split belongs to the later chunk.
    """

    end: int
    before: str
    text: str


@dataclass(frozen=True)
class Cutting:
    """How responses are split: after every `size` tokens, or with `at: lines` at the next line end.
    White space alone is never a chunk."""

    size: int
    at: Literal["tokens", "lines"] = "tokens"


@dataclass
class Prompt:
    """One row of a prompt set.

    `task` names the layout with which the policy renders the prompt; `metadata` goes to the rewards
    unchanged (for GenEval-style prompts: `tag`, `include`, `exclude`).

    `images` of a prompt file are not in memory: each access (`images[0]`, a loop) opens one in mode
    RGB, and `len` opens none. In `messages` each has a part `{"type": "image"}`, in the same order;
    without messages they precede the text.

    `prefill` is what the completion begins with: given after the prompt, not sampled.
    """

    id: str
    task: str
    text: str
    messages: list[dict[str, Any]] | None = None
    images: Sequence[Image.Image] | None = None
    answer: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    place: str = field(default="", compare=False)
    """File and line of the row, for messages, such as `rows.jsonl, line 3`."""
    prefill: str = ""
    original: str | None = None
    """The text that rewards see, where `text` is another policy's rewriting of it."""

    @property
    def image_sizes(self) -> list[tuple[int, int]]:
        """Width and height of each image in pixels; those of a prompt file are not opened."""
        sizes = getattr(self.images, "sizes", None)
        return [image.size for image in self.images or ()] if sizes is None else sizes

    @property
    def facts(self) -> dict[str, Any]:
        """The metadata with the answer, for the rewards."""
        return {**self.metadata, "answer": self.answer}


@dataclass
class Sample:
    """What a reward scores: the prompt text, a finished completion (text, image or video), its
    metadata.

    `images` and `id` are those of the prompt. `chunks` are those of the completion, None unless a
    reward of the task scores chunks.
    """

    prompt: str
    completion: Completion
    metadata: dict[str, Any] = field(default_factory=dict)
    images: Sequence[Image.Image] | None = None
    chunks: Sequence[Chunk] | None = None
    id: str = ""

    @staticmethod
    def of(prompt: Prompt, completion: Completion, chunks: Sequence[Chunk] | None = None) -> Sample:
        """A completion of a prompt."""
        text = prompt.text if prompt.original is None else prompt.original
        return Sample(text, completion, prompt.facts, prompt.images, chunks, prompt.id)
