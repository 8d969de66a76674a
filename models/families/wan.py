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
from math import prod
from typing import Any

import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn

from mmrl.config import check
from mmrl.models.families.family import read_number
from mmrl.models.families.latent_family import LatentFamily
from mmrl.models.layouts.layout_config import LayoutConfig
from mmrl.models.layouts.text_to_latents import ImageToVideo, TextToVideo
from mmrl.models.network.pipeline_parts import build_network
from mmrl.models.network.velocity_network import ChannelScaledNetwork

TEXT_TOKENS = 512
"""Positions of a text, of the pipeline; zeros behind it are read as well."""
FRAMES, SIZE = 81, (480, 832)
"""Frames, height and width of the pipeline's videos."""
EACH_TOKEN, FPS = "expand_timesteps", {False: 16.0, True: 24.0}
"""Whether each token has its own time (2.2 5B), where all have that of the step without an image;
and the rate of the videos."""


class Rotation(nn.Module):
    """The rotary embedding of a transformer, made for each device where it is asked for: it is no
    weight, so no cast and no meta device may reach it."""

    def __init__(self, public: Any) -> None:
        super().__init__()
        sizes = public.attention_head_dim, public.patch_size, public.max_seq_len
        self.made, self.sizes, self.kind = dict[torch.device, Any](), sizes, type(public)

    def forward(self, latents: Tensor) -> tuple[Tensor, Tensor]:
        """Of each token of latents [B, C, T, H, W]."""
        if latents.device not in self.made:
            with torch.inference_mode(False), torch.device(latents.device):
                self.made[latents.device] = self.kind(*self.sizes)
        return self.made[latents.device](latents)


class WanNetwork(ChannelScaledNetwork):
    """The transformer of a config of diffusers, on latents [B, C, T, H, W]; or two, of which
    the second predicts below the noise level `boundary_ratio` of the config."""

    kind, lists = "WanTransformer3DModel", ("blocks",)
    layer_roles = {
        **{role: (f"attn1.to_{role}", f"attn2.to_{role}") for role in "qkv"},
        "o": ("attn1.to_out.0", "attn2.to_out.0"),
        **dict.fromkeys(("gate", "up"), ("ffn.net.0.proj",)),
        "down": ("ffn.net.2",),
    }

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__(config)
        self.transformer.rope = Rotation(self.transformer.rope)
        second = config.get("transformer_2")
        self.transformer_2: Any = None if second is None else build_network(self.kind, second)
        self.boundary, self.can_shard = config.get("boundary_ratio") or 0.0, second is None
        if second is not None:
            self.transformer_2.rope = Rotation(self.transformer_2.rope)
            self.blocks = [*self.blocks, *self.transformer_2.blocks]

    def forward(
        self,
        latents: Tensor,
        sigma: Tensor,
        states: Tensor,
        source: Tensor | None = None,
        shown: Tensor | None = None,
    ) -> Tensor:
        """See `VelocityNetwork.forward`; behind the `states` of a text are zeros, `source` is of
        `encode_source`, `shown` [B, m, V] are states of images.

        A network that reads no latents of images beside those of videos has the image in the place
        of the first frame, at time 0. The velocity there leads to the image, so that a finished
        latent holds it; diffusers puts it there afterwards."""
        if source is None:
            return self._denoise(latents, sigma * 1000, sigma, states, shown)
        beside = self.unpack_source(source, self.source_shape(latents.shape[1:]))
        if self.widened:
            both = torch.cat([latents.to(self.dtype), beside], 1)
            return self._denoise(both, sigma * 1000, sigma, states, shown)
        tokens = self.count_tokens(latents.shape[1:])
        times = (sigma * 1000)[:, None].repeat(1, tokens)
        times[:, : tokens // latents.shape[2]] = 0
        both = torch.cat([beside, latents[:, :, 1:].to(self.dtype)], 2)
        found = self._denoise(both, times, sigma, states, shown)
        held = (latents[:, :, :1] - beside) / sigma.view(-1, 1, 1, 1, 1)
        return torch.cat([held, found[:, :, 1:]], 2)

    def _denoise(self, latents: Tensor, times: Tensor, sigma: Tensor, *given: Any) -> Tensor:
        """What the experts predict of what they read, each of the rows of its noise levels."""
        with self.recomputed():
            if self.transformer_2 is None:
                return self._predict(self.transformer, latents, times, *given)
            high = sigma >= self.boundary
            channels = self.transformer.config.out_channels
            found = torch.zeros_like(latents[:, :channels], dtype=self.dtype)
            for expert, chosen in ((self.transformer, high), (self.transformer_2, ~high)):
                rows = chosen.nonzero().flatten()
                unused = len(rows) == 0
                if unused and not torch.is_grad_enabled():
                    continue
                rows = rows.new_zeros(1) if unused else rows  # a gradient, of zeros, in any case
                given_rows = (None if each is None else each[rows] for each in given)
                own = self._predict(expert, latents[rows], times[rows], *given_rows)
                found = found.index_add(0, rows, (own * (not unused)).to(found.dtype))
            return found

    def _predict(
        self, expert: Any, latents: Tensor, times: Tensor, states: Tensor, shown: Tensor | None
    ) -> Tensor:
        return expert(
            hidden_states=latents.to(self.dtype),
            timestep=times,
            encoder_hidden_states=states.to(self.dtype),
            encoder_hidden_states_image=None if shown is None else shown.to(self.dtype),
        ).sample

    @property
    def widened(self) -> int:
        """Channels of what is read beside the latents."""
        return self.transformer.config.in_channels - self.transformer.config.out_channels

    def source_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Of what `encode_source` gives beside a latent of a shape."""
        return (self.widened, *shape[1:]) if self.widened else (shape[0], 1, *shape[2:])

    def encode_source(self, pixels: Tensor, shape: Sequence[int]) -> Tensor:
        """[1, D]: the latent of the first frame; where it is read beside a video, that of the video
        whose other frames are grey, after channels that say which frames are given."""
        stride = self.widened - shape[0]
        behind = stride * (shape[1] - 1) if self.widened else 0
        video = F.pad(pixels[:, None], (0, 0, 0, 0, 0, behind))[None]
        latent = self.parts.encode_images(video, self.from_encoder)
        if self.widened:
            given = latent.new_zeros(1, stride, *shape[1:])
            given[:, :, 0] = 1
            latent = torch.cat([given, latent], 1)
        return latent.flatten(1)

    @property
    def patch(self) -> int:
        return self.transformer.config.patch_size[-1]

    def count_tokens(self, shape: Sequence[int]) -> int:
        return shape[-3] // self.transformer.config.patch_size[0] * super().count_tokens(shape)

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        config = self.transformer.config
        latents, wide = (config.out_channels, *config.patch_size), config.image_dim
        beside = {"source": (prod(self.source_shape(latents)),)} if self.widened else {}
        shown = {} if wide is None else {"shown": (1, wide)}
        return {"latents": latents, "states": (1, config.text_dim), **beside, **shown}

    def count_activations(self, length: int, recompute: bool, size: int) -> tuple[float, float]:
        """Of a token of a video, a block keeps about 22 vectors of its width and 2 of that of its
        feed-forward; computed again, 1. Of one of a text, 4; all blocks share 11."""
        config, text = self.transformer.config, min(TEXT_TOKENS, length // 2)
        width, layers = config.num_attention_heads * config.attention_head_dim, config.num_layers
        block, video = 22 + 2 * config.ffn_dim / width, length - text
        inside = video if recompute else block * video + 4 * text
        kept = layers * inside + 4 * video + 11 * text
        return kept * width * size, (1.4 if recompute else 0.7) * block * video * width * size


class Wan(LatentFamily):
    """A family; see `LatentFamily`."""

    LAYOUTS = {"text_to_video": TextToVideo}
    KEYS = {"transformer.": "", "transformer_2.": "transformer_2."}
    pipeline, made = "WanPipeline", WanNetwork

    def encode_text(
        self,
        pipeline: Any,
        texts: list[str],
        device: torch.device,
        max_length: int,
        image: Image.Image | None = None,
    ) -> dict[str, Tensor]:
        """States of the tokens of texts, of at most `max_length`, and zeros up to the 512 positions
        that the network was trained with, or to the length of its tokenizer where that is less;
        with those of an image."""
        positions = min(TEXT_TOKENS, pipeline.tokenizer.model_max_length)
        states, _ = pipeline.encode_prompt(
            texts, None, False, max_sequence_length=max_length, device=device
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
