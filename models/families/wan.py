"""Wan 2.1 and 2.2: videos of texts (Wan-AI/Wan2.1-T2V-1.3B-Diffusers and -14B-, Wan2.2-T2V-A14B-),
of a first frame and a text (Wan2.1-I2V-14B-, Wan2.2-I2V-A14B-), or of either (Wan2.2-TI2V-5B-);
arXiv 2503.20314.

A checkpoint is the directory of a `WanPipeline` or a `WanImageToVideoPipeline`; its text encoder is
a UMT5, and the 2.1 of images shows them to a CLIP as well, at the size of the video. Published ones
name UniPC as their scheduler, whose steps have no log-probs; rollouts take those of the flow, on an
even grid with the same `flow_shift`; `sampler.shift` sets another.
A14B has two transformers: the second, for the noise levels below `boundary_ratio`, is trained and
saved as the first is, under names that begin with `transformer_2`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from mmrl.config import check
from mmrl.models.families.family import read_number
from mmrl.models.families.latent_family import LatentFamily
from mmrl.models.layouts.from_image import ImageToVideo
from mmrl.models.layouts.layout_config import LayoutConfig
from mmrl.models.layouts.text_to_video import TextToVideo
from mmrl.models.network.wan import TEXT_TOKENS, WanNetwork

FRAMES, SIZE = 81, (480, 832)
"""Frames, height and width of the pipeline's videos."""
EACH_TOKEN, FPS = "expand_timesteps", {False: 16.0, True: 24.0}
"""Whether each token has its own time (2.2 5B), where all have that of the step without an image;
and the rate of the videos."""


class Wan(LatentFamily):
    """A family; see `LatentFamily`."""

    LAYOUTS = {"text_to_video": TextToVideo}
    KEYS = {"transformer.": "", "transformer_2.": "transformer_2."}
    pipeline, made = "WanPipeline", WanNetwork

    def encode_text(
        self,
        pipeline: Any,
        text: str | list[str],
        device: torch.device,
        max_length: int,
        image: Image.Image | None = None,
    ) -> dict[str, Tensor]:
        """States of the tokens of texts, see `WanNetwork.forward`: of at most `max_length`, and
        zeros up to the 512 positions that the network was trained with, or to the length of its
        tokenizer where that is less; with those of an image."""
        positions = min(TEXT_TOKENS, pipeline.tokenizer.model_max_length)
        states, _ = pipeline.encode_prompt(
            text, None, False, max_sequence_length=max_length, device=device
        )
        shown = {} if image is None else {"shown": pipeline.encode_image(image, device)}
        return {"states": F.pad(states, (0, 0, 0, max(0, positions - max_length))), **shown}

    def count_channels(self, config: Mapping[str, Any]) -> int:
        return read_number(config, "out_channels")

    def layout_options(self, config: Mapping[str, Any], options: LayoutConfig) -> dict[str, Any]:
        stride, number = config["vae"].get("scale_factor_temporal", 4), options.num_frames or FRAMES
        allowed = f"1 more than a multiple of {stride}, such as {5 * stride + 1}"
        check((number - 1) % stride == 0, "model.num_frames", number, allowed)
        return {"frames": number, "stride": stride, "fps": FPS[bool(config.get(EACH_TOKEN))]}

    def count_pixels(self, config: Mapping[str, Any]) -> int:
        return config["vae"].get("scale_factor_spatial", 8)

    def find_size(self, config: Mapping[str, Any]) -> Sequence[int]:
        return SIZE

    def count_frames(self, config: Mapping[str, Any], number: int | None) -> int:
        """Latent frames of a video of so many frames, or of the pipeline's number."""
        return ((number or FRAMES) - 1) // config["vae"].get("scale_factor_temporal", 4) + 1

    def count_latents(self, config: Mapping[str, Any]) -> int:
        return config["patch_size"][-1]

    def count_codes(self, config: Mapping[str, Any]) -> int:
        return (SIZE[0] * SIZE[1]) // self.count_patch(config) ** 2


class WanOfBoth(Wan):
    """A family; see `LatentFamily`. Each token has its own time, that of a given frame 0."""

    LAYOUTS = {"text_to_video": TextToVideo, "image_to_video": ImageToVideo}

    def matches(self, config: Mapping[str, Any]) -> bool:
        return super().matches(config) and bool(config.get(EACH_TOKEN))


class WanImageToVideo(Wan):
    """A family; see `LatentFamily`."""

    LAYOUTS = {"image_to_video": ImageToVideo}
    pipeline = "WanImageToVideoPipeline"

    def shows_image(self, config: Mapping[str, Any]) -> bool:
        return config.get("image_dim") is not None
