"""Generation of videos as latents: prompts in, frames out."""

from collections.abc import Sequence
from dataclasses import dataclass

from PIL import Image
from torch import Tensor

from mmrl.generation.flow.canvas import LatentCanvas
from mmrl.models.layouts.pixels import clip_to_pixels
from mmrl.models.layouts.text_to_latents import TextToLatents
from mmrl.types import Prompt, Video


@dataclass(frozen=True)
class TextToVideo(TextToLatents):
    """Encodes prompts, and decodes finished latents to frames.

    Attributes:
        frames: of a video, where its prompt does not give its own under `num_frames` of its
            metadata.
        stride: frames for each latent one after the first.
        fps: of the videos.
    """

    frames: int = 81
    stride: int = 4
    fps: float = 16.0

    def shape_of(self, prompt: Prompt) -> tuple[int, ...]:
        """Channels, frames, height and width of the latent of a prompt. Raises ValueError: its
        frames are no whole number of tokens, or not one more than a multiple of `stride`."""
        channels, *sides = super().shape_of(prompt)
        number = prompt.metadata.get("num_frames", self.frames)
        if not isinstance(number, int) or number < 1 or (number - 1) % self.stride:
            raise ValueError(
                f"{prompt.place or prompt.id}: num_frames is {number!r}; it must be 1 more than a"
                f" multiple of {self.stride}, such as {5 * self.stride + 1}"
            )
        return channels, (number - 1) // self.stride + 1, *sides

    def fit_pixels(self, frames: Sequence[Image.Image]) -> Tensor:
        """[3, T, H, W], see `clip_to_pixels`."""
        return clip_to_pixels(frames, self.frames, self.size)

    def decode(self, canvas: LatentCanvas) -> list[Video]:
        """Finished latents -> B videos."""
        return [Video(each, self.fps) for each in self._decode(canvas, self.parts.decode_frames)]

    def render(self, canvas: LatentCanvas) -> list[Tensor]:
        """Finished latents -> B videos as pixels [T, 3, H, W], see `Policy.render`."""
        return [each.transpose(0, 1) for each in self._decode(canvas, self.parts.render)]
