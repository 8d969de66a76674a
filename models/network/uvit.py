"""diffusers' `UVit2DModel` as a network: rows of text and image codes in, logits of codes out.

    row   text x 77 | code x n        the n codes of a square image, row by row

Text ids follow the code ids, so that no id means two things. A hidden text token, which has the id
of the mask, is read as token 0 of CLIP.
"""

from collections.abc import Mapping
from math import isqrt
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mmrl.models.network.attention import choose_attention
from mmrl.models.network.pipeline_parts import PipelineParts, build_network, count_parameters
from mmrl.models.network.token_network import TokenNetwork

CROP, AESTHETIC = (0, 0), 6
"""What the pipeline conditions on beside width and height of the image."""


class UVit(TokenNetwork):
    """The transformer, its last convolution as `head`, and a frozen text encoder beside them: of a
    config with the section `text_encoder`, and `patch` pixels per code along a side. A row begins
    with `text_length` positions of text, whose token 0 is `text_offset`."""

    layer_roles = {
        **{role: (f"to_{role}",) for role in ("q", "k", "v")},
        "o": ("to_out.0",),
        "gate": ("ff.net.0.proj",),
        "up": ("ff.net.0.proj",),
        "down": ("ff.net.2",),
    }

    def __init__(self, config: Mapping[str, Any], patch: int) -> None:
        super().__init__()
        self.transformer = build_network("UVit2DModel", config)
        self.head = self.transformer.mlm_layer.conv2
        self.transformer.mlm_layer.conv2 = nn.Identity()
        self.register_module("vision", None)
        ends = self.transformer.down_block, self.transformer.up_block
        lists = [each for end in ends for each in (end.res_blocks, end.attention_blocks)]
        self.blocks = [x for each in (*lists, self.transformer.transformer_layers) for x in each]
        self.patch, self.public_config = patch, dict(config)
        self.sizes = config["text_encoder"]
        self.text_length: int = self.sizes.get("max_position_embeddings", 77)
        self.text_offset: int = config["vocab_size"]
        self.vocab_size = self.sizes.get("vocab_size", 49408)
        self.width = self.transformer.config.in_channels
        self.parts: Any = None

    def blank(self) -> list[dict[str, Any]]:
        """See `Network.blank`: of the smallest square of codes."""
        codes = 4 if self.transformer.config.downsample else 1
        row = torch.zeros(1, self.text_length + codes, dtype=torch.long, device=self.device)
        return [{"input_ids": row}]

    def load_parts(self, folder: Path, dtype: torch.dtype, device: torch.device | str) -> None:
        self.parts = PipelineParts(folder, dtype, torch.device(device), kept_on=device)
        self.parts.encoders  # noqa: B018  # read now, for every pass needs it

    def count_parts(self) -> dict[str, int]:
        return count_parameters(self.public_config)

    def set_attention(self, implementation: str) -> None:
        super().set_attention(implementation)
        from diffusers.models.attention_processor import AttnProcessor, AttnProcessor2_0

        kernel, _ = choose_attention(implementation, self.device.type, self.transformer.dtype)
        self.transformer.set_attn_processor(
            AttnProcessor() if kernel == "eager" else AttnProcessor2_0()
        )

    def hidden_states(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        positions: Tensor | None = None,
    ) -> Tensor:
        """What the last convolution reads, zeros for text; see `TokenNetwork.hidden_states`. Raises
        ValueError: padding, which this network has none of, or no square of codes."""
        text, codes = input_ids.split((self.text_length, input_ids.shape[1] - self.text_length), 1)
        side = isqrt(codes.shape[1])
        if attention_mask is not None or side * side != codes.shape[1]:
            raise ValueError(
                f"rows of {codes.shape[1]} codes; they must be those of a square, without padding"
            )
        states, pooled = self.encode((text - self.text_offset).clamp(min=0))
        sides = (side * self.patch, side * self.patch)
        micro = pooled.new_tensor((*sides, *CROP, AESTHETIC)).expand(len(codes), -1)
        with self.recomputed():
            x = self.transformer(codes.view(-1, side, side), states, pooled, micro)
        x = x.flatten(2).transpose(1, 2)
        if positions is None:
            return F.pad(x, (0, 0, self.text_length, 0))
        return x[positions[:, self.text_length :]]

    def encode(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Ids of texts [B, n] -> their states [B, n, W], and pooled vectors [B, P]."""
        texts = [" ".join(map(str, row)) for row in ids.tolist()]
        rows = [self.parts.encode(text, encode_ids) for text in texts]
        kind = {"device": ids.device, "dtype": self.transformer.dtype}
        found = [torch.cat([row[name] for row in rows]).to(**kind) for name in ("states", "pooled")]
        return found[0], found[1]

    def count_activations(self, length: int, recompute: bool, size: int) -> tuple[float, float]:
        """For each code of the inner grid a block of the transformer keeps about 18 vectors of the
        hidden and 4 of the MLP width, one of the outer blocks about 40 of its channels."""
        config = self.transformer.config
        codes = (config.sample_size // (2 if config.downsample else 1)) ** 2
        block = 18 * config.hidden_size + 4 * config.intermediate_size
        layer, some = (config.hidden_size, 4) if recompute else (block, 40)
        outer = 2 * config.num_res_blocks * config.block_out_channels
        kept = config.num_hidden_layers * layer + some * outer
        return codes * kept * size, codes * block / (1 if recompute else 2) * size


def encode_ids(pipeline: Any, texts: list[str], device: torch.device) -> dict[str, Tensor]:
    """States of the last layer but one of CLIP and its pooled vector; a text is its ids."""
    ids = torch.tensor([[*map(int, text.split())] for text in texts], device=device)
    output = pipeline.text_encoder(ids, output_hidden_states=True)
    return {"states": output.hidden_states[-2], "pooled": output.text_embeds}
