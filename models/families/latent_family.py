"""What families of pipelines that denoise latents share."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import partial
from typing import Any

import torch
from torch import Tensor

from mmrl.config import check
from mmrl.generation.flow.schedules import SigmaRule, rule_of
from mmrl.models.families.family import LayoutInputs, read_number
from mmrl.models.layouts.layout import Layout
from mmrl.models.layouts.layout_config import LayoutConfig
from mmrl.models.layouts.text_to_latents import TextToLatents
from mmrl.models.network.velocity_network import VelocityNetwork


class LatentFamily:
    """A `Family` of pipelines of diffusers; a subclass says how a text is encoded, and what differs
    from the pipeline of SD3.

    Attributes:
        pipeline: name of their class.
        made: class of their networks.
        even: whether the pipeline makes the grid of sigmas itself, see `rule_of`.
        optional: text encoders that it can do without.
    """

    KIND: str = "flow"
    LAYOUTS: dict[str, Any] = {"text_to_image": TextToLatents}
    TOKEN_IDS: dict[str, int] = {}
    KEYS: dict[str, str] = {"transformer.": ""}
    pipeline: str
    made: type[VelocityNetwork]
    even: bool | None = None
    optional: Sequence[str] = ()

    def encode_text(
        self, pipeline: Any, texts: list[str], device: torch.device, max_length: int
    ) -> dict[str, Tensor]:
        """What the network is conditioned on, see `mmrl.models.network.pipeline_parts.Encode`."""
        raise NotImplementedError

    def matches(self, config: Mapping[str, Any]) -> bool:
        """Whether the directory is that of such a pipeline."""
        return config.get("_class_name") == self.pipeline

    def network(self, config: Mapping[str, Any], /) -> VelocityNetwork:
        """The transformer. Raises ValueError: latents of other channels than the autoencoder's."""
        vae = config["vae"]
        channels, own = self.count_channels(config), vae.get("latent_channels", vae.get("z_dim"))
        if channels != own:
            raise ValueError(
                f"the transformer reads latents of {channels} channels, and the vae writes {own}:"
                " they do not belong together"
            )
        return self.made(config)

    def layouts(self, inputs: LayoutInputs) -> dict[str, Layout]:
        """Those of `LAYOUTS`, which share their parts; see `Family.layouts`. Raises ConfigError:
        `without_parts` names what the pipeline cannot do without."""
        network, options, config = inputs.network, inputs.options, inputs.network.public_config
        allowed = ", ".join(self.optional) or "nothing, the pipeline needs all its text encoders"
        for name in options.without_parts:
            check(name in self.optional, "model.without_parts", name, allowed)
        kept = {"store": options.encodings_dir, "tiled": options.vae_tiling}
        network.part_options = {"left_out": options.without_parts, **kept}
        sides = [options.image_size] * 2 if options.image_size else self.find_size(config)
        parts = {
            "network": network,
            "encode_text": partial(self.encode_text, max_length=options.max_prompt_length),
            "rule": self.find_rule(config),
            "channels": network.shapes["latents"][0],
            "pixels": self.count_pixels(config),
            "size": (options.image_height or sides[0], options.image_width or sides[1]),
            "max_length": options.max_prompt_length,
            "unloads": options.unload_text_encoders,
            "image_fit": options.image_fit,
            "shows_image": self.shows_image(config),
            **self.layout_options(config, options),
        }
        taken = {task: {f.name for f in fields(kind)} for task, kind in self.LAYOUTS.items()}
        own = {task: {k: v for k, v in parts.items() if k in taken[task]} for task in taken}
        return {task: layout(**own[task]) for task, layout in self.LAYOUTS.items()}

    def shows_image(self, config: Mapping[str, Any]) -> bool:
        """Whether `encode_text` takes the image of a prompt, too, as `image`."""
        return False

    def layout_options(self, config: Mapping[str, Any], options: LayoutConfig) -> dict[str, Any]:
        """What else layouts take. Raises ConfigError: an option that does not fit."""
        return {}

    def find_size(self, config: Mapping[str, Any]) -> Sequence[int]:
        """Height and width in pixels where none is asked for."""
        return [self.count_side(config) * self.count_pixels(config)] * 2

    def find_rule(self, config: Mapping[str, Any]) -> SigmaRule:
        """The schedule of a checkpoint."""
        return rule_of(config["scheduler"], even=self.even)

    def count_channels(self, config: Mapping[str, Any]) -> int:
        """Of what the autoencoder writes."""
        return read_number(config, "in_channels")

    def count_pixels(self, config: Mapping[str, Any]) -> int:
        """Pixels for each latent along a side."""
        vae = config["vae"]
        return 2 ** (len(vae.get("encoder_block_out_channels") or vae["block_out_channels"]) - 1)

    def count_side(self, config: Mapping[str, Any]) -> int:
        """Latents along the side of an image where no size is asked for; 128 in pipelines of
        networks that have no size."""
        return config.get("sample_size", 128)

    def count_latents(self, config: Mapping[str, Any]) -> int:
        """Latents along the side of a token."""
        return config["patch_size"]

    def count_patch(self, config: Mapping[str, Any]) -> int:
        """Pixels for each token along a side."""
        return self.count_pixels(config) * self.count_latents(config)

    def count_codes(self, config: Mapping[str, Any]) -> int:
        """Tokens of an image where no size is asked for."""
        return (self.count_side(config) // self.count_latents(config)) ** 2
