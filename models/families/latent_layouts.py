"""What families of pipelines that denoise latents share."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from mmrl.config import check
from mmrl.generation.flow.schedules import SigmaRule
from mmrl.models.families.family import LayoutInputs
from mmrl.models.layouts.layout import Layout
from mmrl.models.layouts.text_to_latents import TextToLatents


def latent_layouts(
    inputs: LayoutInputs,
    encode_text: Any,
    rule: SigmaRule,
    pixels: int,
    channels: int,
    side: int,
    optional: Sequence[str] = (),
) -> dict[str, Layout]:
    """Images alone; see `Family.layouts`.

    Args:
        encode_text: `encode_text(pipeline, text, device, max_length)` gives what the network is
            conditioned on, see `mmrl.models.network.pipeline_parts.Encode`.
        rule: the schedule of the checkpoint.
        pixels: of an image for each latent, along a side.
        channels: of a latent.
        side: latents along the side of an image where no size is asked for.
        optional: text encoders that the pipeline can do without.

    Raises:
        ConfigError: `without_parts` names another.
    """
    network, options = inputs.network, inputs.options
    allowed = ", ".join(optional) or "nothing, the pipeline needs all its text encoders"
    for name in options.without_parts:
        check(name in optional, "model.without_parts", name, allowed)
    network.part_options = {"left_out": options.without_parts, "store": options.encodings_dir}
    size = options.image_size or side * pixels
    return {
        "text_to_image": TextToLatents(
            network=network,
            encode_text=partial(encode_text, max_length=options.max_prompt_length),
            rule=rule,
            channels=channels,
            pixels=pixels,
            size=(options.image_height or size, options.image_width or size),
            max_length=options.max_prompt_length,
            unloads=options.unload_text_encoders,
        )
    }


def encode_each(
    encode: Callable[[str], tuple[Tensor, Tensor]], text: str | list[str]
) -> dict[str, Tensor]:
    """States and masks of texts, each encoded alone; `encode(text)` gives both of one, [1, …]."""
    found = [encode(each) for each in ([text] if isinstance(text, str) else text)]
    states, masks = zip(*found, strict=True)
    return {"states": torch.cat(states), "mask": torch.cat(masks)}


def check_channels(channels: int, own: Any) -> None:
    """Raise a ValueError for latents of other channels than the autoencoder's `own`."""
    if channels != own:
        raise ValueError(
            f"the transformer reads latents of {channels} channels, and the vae writes {own}: they"
            " do not belong together"
        )


def count_halvings(vae: Mapping[str, Any]) -> int:
    """Pixels for each latent along a side, of diffusers' `AutoencoderKL` or `AutoencoderDC`."""
    return 2 ** (len(vae.get("encoder_block_out_channels") or vae["block_out_channels"]) - 1)
