"""Qwen-Image (Qwen/Qwen-Image, Qwen/Qwen-Image-Edit; arXiv 2508.02324).

A checkpoint is the directory of a `QwenImagePipeline`, or of a `QwenImageEditPipeline`, which edits
images; its text encoder is a Qwen2.5-VL, that reads the source image, too. Deviation: this one has
the size of the image that is written, where the pipeline makes it one of a million pixels.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from mmrl.models.families.family import read_number
from mmrl.models.families.latent_family import LatentFamily
from mmrl.models.layouts.text_to_latents import EditedLatents
from mmrl.models.network.velocity_network import ATTENTION, ChannelScaledNetwork
from mmrl.types.guidance import Guidance

NO_TEXT = " "
"""In the place of the empty text: the pipeline's own example of a negative prompt."""


class QwenImageNetwork(ChannelScaledNetwork):
    """The transformer of a config of diffusers, on latents [B, C, H, W] that it reads as tokens of
    two by two, channel by channel."""

    kind, packed, beside = "QwenImageTransformer2DModel", True, ("mask",)
    layer_roles = {
        **ATTENTION,
        **dict.fromkeys(("gate", "up"), ("img_mlp.net.0.proj", "txt_mlp.net.0.proj")),
        "down": ("img_mlp.net.2", "txt_mlp.net.2"),
    }

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__(config)
        place: Any = self.transformer.pos_embed
        with torch.device("cpu"):  # no buffers, so that they would stay on the meta device
            self.transformer.pos_embed = type(place)(place.theta, place.axes_dim, place.scale_rope)

    def forward(
        self,
        latents: Tensor,
        sigma: Tensor,
        states: Tensor,
        mask: Tensor,
        source: Tensor | None = None,
    ) -> Tensor:
        grids = [F.pixel_unshuffle(latents, self.patch).to(self.dtype)]
        height, width = grids[0].shape[-2:]
        if source is not None:
            beside = self.unpack_source(source, latents.shape[1:])
            grids.append(F.pixel_unshuffle(beside, self.patch))
        with self.recomputed():
            found = self.transformer(
                hidden_states=torch.cat([grid.flatten(2) for grid in grids], 2).mT,
                timestep=sigma,
                encoder_hidden_states=states.to(self.dtype),
                encoder_hidden_states_mask=mask.bool(),
                img_shapes=[[(1, height, width)] * len(grids)] * len(latents),
            ).sample[:, : height * width]
        return F.pixel_shuffle(found.transpose(1, 2).unflatten(2, (height, width)), self.patch)

    def guide(self, branches: Sequence[Tensor], guidance: Guidance) -> Tensor:
        """Each token of the guided velocity keeps the norm that it has without guidance, as in
        diffusers' pipeline, whose `true_cfg_scale` is w + 1."""
        if guidance.branches == 1:
            return branches[0]
        both = branches[0], guidance.combine(branches)
        own, guided = (F.pixel_unshuffle(x, self.patch) for x in both)
        norms = (torch.linalg.vector_norm(x, dim=1, keepdim=True) for x in (own, guided))
        scale = next(norms) / next(norms).clamp_min(torch.finfo(guided.dtype).tiny)
        return F.pixel_shuffle(guided * scale, self.patch)

    def count_activations(self, length: int, recompute: bool, size: int) -> tuple[float, float]:
        """Of a position a block keeps about 24 vectors of its width; computed again, its input."""
        vector, layers = self.transformer.inner_dim * length * size, len(self.blocks)
        kept, working = (layers + 3, 33) if recompute else (24 * layers + 4, 17)
        return kept * vector, working * vector


class QwenImage(LatentFamily):
    """A family; see `LatentFamily`."""

    pipeline, made = "QwenImagePipeline", QwenImageNetwork

    def encode_text(
        self,
        pipeline: Any,
        texts: list[str],
        device: torch.device,
        max_length: int,
        image: Image.Image | None = None,
    ) -> dict[str, Tensor]:
        """States and mask of the tokens of texts, after those of an image that comes with them.
        Texts are padded to `max_length`, so that a row is computed alike in each batch."""
        texts = [each or NO_TEXT for each in texts]
        given = {"device": device, **({} if image is None else {"image": image})}
        states, mask = pipeline.encode_prompt(texts, max_sequence_length=max_length, **given)
        mask = states.new_ones(states.shape[:2]) if mask is None else mask
        if image is not None:
            reader = pipeline.processor.image_processor
            max_length += int(reader(image)["image_grid_thw"].prod()) // reader.merge_size**2
        room = max_length - states.shape[1]  # below 0 it cuts
        return {"states": F.pad(states, (0, 0, 0, room)), "mask": F.pad(mask, (0, room)).bool()}

    def count_channels(self, config: Mapping[str, Any]) -> int:
        return read_number(config, "in_channels") // config["patch_size"] ** 2

    def count_pixels(self, config: Mapping[str, Any]) -> int:
        return 2 ** len(config["vae"]["temperal_downsample"])


class QwenImageEdit(QwenImage):
    """A family; see `LatentFamily`."""

    LAYOUTS = {"image_edit": EditedLatents}
    pipeline = "QwenImageEditPipeline"

    def shows_image(self, config: Mapping[str, Any]) -> bool:
        return True
