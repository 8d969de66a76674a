"""diffusers' `UVit2DModel` as a network: rows of text and image codes in, logits of codes out.

    row   text x 77 | code x n        the n codes of a square image, row by row

Text ids follow the code ids, so that no id means two things. A hidden text token, which has the id
of the mask, is read as token 0 of CLIP.
"""

from collections.abc import Callable, Mapping
from inspect import signature
from math import isqrt
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mmrl.models.network.attention import choose_attention
from mmrl.models.network.output_head import OutputHead
from mmrl.models.network.text_encoder import TextEncoder
from mmrl.models.network.token_network import LMOutput, TokenNetwork

CROP, AESTHETIC = (0, 0), 6
"""What the pipeline conditions on beside width and height of the image."""


class UVit(TokenNetwork):
    """The transformer, its last convolution as `head`, and a frozen text encoder beside them: of a
    config with the section `text_encoder`, and `patch` pixels per code along a side. A row begins
    with `text_length` positions of text, whose token 0 is `text_offset`."""

    can_reduce = True
    layer_roles = {
        **{role: (f"to_{role}",) for role in ("q", "k", "v")},
        "o": ("to_out.0",),
        "gate": ("ff.net.0.proj",),
        "up": ("ff.net.0.proj",),
        "down": ("ff.net.2",),
    }

    def __init__(self, config: Mapping[str, Any], patch: int) -> None:
        super().__init__()
        from diffusers import UVit2DModel as kind

        self.transformer = kind(**{k: config[k] for k in signature(kind).parameters if k in config})
        self.head = self.transformer.mlm_layer.conv2
        self.transformer.mlm_layer.conv2 = nn.Identity()
        self.register_module("vision", None)
        self.blocks = list_blocks(self.transformer)
        self.patch, self.sizes = patch, config["text_encoder"]
        self.text_length: int = self.sizes.get("max_position_embeddings", 77)
        self.text_offset: int = config["vocab_size"]
        self.text: TextEncoder | None = None

    @property
    def vocab_size(self) -> int:
        return self.sizes.get("vocab_size", 49408)

    @property
    def width(self) -> int:
        return self.transformer.config.in_channels

    def blank(self) -> list[dict[str, Any]]:
        """See `Network.blank`: of the smallest square of codes."""
        codes = 4 if self.transformer.config.downsample else 1
        row = torch.zeros(1, self.text_length + codes, dtype=torch.long, device=self.device)
        return [{"input_ids": row}]

    def load_parts(self, folder: Path, dtype: torch.dtype, device: torch.device | str) -> None:
        self.text = TextEncoder.load(folder / "text_encoder", dtype, device)

    def count_parts(self) -> int:
        return TextEncoder.count(self.sizes)

    def _apply(self, fn: Any, recurse: bool = True) -> "UVit":
        if self.text is not None:
            self.text = self.text.convert(fn)
        return super()._apply(fn, recurse)

    def set_attention(self, implementation: str) -> None:
        super().set_attention(implementation)
        from diffusers.models.attention_processor import AttnProcessor, AttnProcessor2_0

        kernel, _ = choose_attention(implementation, self.device.type, self.transformer.dtype)
        self.transformer.set_attn_processor(
            AttnProcessor() if kernel == "eager" else AttnProcessor2_0()
        )

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        positions: Tensor | None = None,
        columns: tuple[int, int] | None = None,
        reduce: Callable[[Tensor, OutputHead], Any] | None = None,
    ) -> LMOutput:
        """See `TokenNetwork.forward`; logits of text positions are 0."""
        x = self.hidden_states(input_ids, attention_mask, positions)
        head = OutputHead(self.head.weight.flatten(1), self.head.bias)
        head = head if columns is None else head.take(*columns)
        return LMOutput(head(x) if reduce is None else reduce(x, head))

    def hidden_states(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        positions: Tensor | None = None,
    ) -> Tensor:
        """What the last convolution reads; see `TokenNetwork.hidden_states`. Raises ValueError:
        padding, which this network has none of, or no square of codes."""
        assert self.text is not None
        text, codes = input_ids.split((self.text_length, input_ids.shape[1] - self.text_length), 1)
        side = isqrt(codes.shape[1])
        if attention_mask is not None or side * side != codes.shape[1]:
            raise ValueError(
                f"rows of {codes.shape[1]} codes; they must be those of a square, without padding"
            )
        states, pooled = self.text((text - self.text_offset).clamp(min=0))
        sides = (side * self.patch, side * self.patch)
        micro = pooled.new_tensor((*sides, *CROP, AESTHETIC)).expand(len(codes), -1)
        with self.recomputed():
            x = self.transformer(codes.view(-1, side, side), states, pooled, micro)
        x = x.flatten(2).transpose(1, 2)
        if positions is None:
            return F.pad(x, (0, 0, self.text_length, 0))
        return x[positions[:, self.text_length :]]

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


def list_blocks(transformer: Any) -> list[nn.Module]:
    """The repeated modules of diffusers' network."""
    ends = transformer.down_block, transformer.up_block
    lists = [each for end in ends for each in (end.res_blocks, end.attention_blocks)]
    return [block for each in (*lists, transformer.transformer_layers) for block in each]
