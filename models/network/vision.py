"""From pixels to embeddings: SigLIP's tower, a projector, a newline vector (LLaVA-NeXT, LLaDA-V).

The tower is transformers' SigLIP with eager attention, which agrees with the public code bit for
bit; the states of its last kept layer are taken before the final norm, whose weights a checkpoint
holds nevertheless. Images are encoded one by one, so that embeddings do not depend, in any bit, on
the others of the batch; supervised training may encode them together (`one_by_one`).
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
import torch.utils.checkpoint
from PIL import Image
from torch import Tensor, nn

from mmrl.generation.tokens.features import PromptImage
from mmrl.models.layouts.anyres import Tiling
from mmrl.models.network.token_network import is_trained

SO400M = {
    "hidden_size": 1152,
    "intermediate_size": 4304,
    "num_hidden_layers": 27,
    "num_attention_heads": 16,
    "image_size": 384,
    "patch_size": 14,
}
"""Sizes of google/siglip2-so400m-patch14-384, the tower of the public checkpoints."""
UNREAD = ("tower.post_layernorm.weight", "tower.post_layernorm.bias")
"""Parameters of a checkpoint that nothing reads, so they never have a gradient."""


class Seen(NamedTuple):
    """`rows` [N, D], the embeddings of all images, and what to compute them from when they are
    needed anew: nothing where no weight is trained, states of a frozen tower, or else pixels."""

    rows: Tensor
    source: Tensor | None


class Vision(nn.Module):
    """Tower, projector and newline vector. The tower has `sizes`, named as in SigLIP's
    configuration, of the layers that are kept, and is frozen unless `train_tower` is called."""

    def __init__(self, sizes: Mapping[str, Any], width: int, tiling: Tiling) -> None:
        # imported here, because it takes longer than torch and most policies see no images
        from transformers import SiglipVisionConfig, SiglipVisionModel

        super().__init__()
        config = SiglipVisionConfig(**sizes, vision_use_head=False)
        config._attn_implementation = "eager"
        self.tiling = tiling
        self.one_by_one = True
        self.tower = SiglipVisionModel(config)
        # follows from the sizes, and on the meta device it would never be filled
        self.tower.embeddings.register_buffer("position_ids", None)
        size = config.hidden_size
        self.projector = nn.Sequential(nn.Linear(size, width), nn.GELU(), nn.Linear(width, width))
        self.newline = nn.Parameter(torch.zeros(width))
        self.train_tower(False)

    def train_tower(self, trained: bool) -> None:
        """Train or freeze the tower; its final norm, which nothing reads, is always frozen."""
        self.tower.requires_grad_(trained)
        for name in UNREAD:
            self.get_parameter(name).requires_grad_(False)

    def forward(
        self, images: Tensor, shown: Sequence[PromptImage], recompute: bool = False
    ) -> Seen:
        """Embeddings of images from the uint8 tiles [T, 3, H, W] of all, or from the states [T, n,
        W] that the tower made of them, in their order; `recompute`: the layers of a trained tower
        are computed again in the backward pass."""
        tiles = [image.tiles for image in shown]
        states = images.split(tiles) if self.one_by_one else (images,)
        if images.ndim == 4:
            states = [self._states(part, recompute) for part in states]
        projected = torch.cat([self.projector(part) for part in states]).split(tiles)
        rows = [
            self.tiling.arrange(part, self.newline, image.width, image.height)
            for part, image in zip(projected, shown, strict=True)
        ]
        return Seen(torch.cat(rows), self._source(images, torch.cat(list(states))))

    def _states(self, tiles: Tensor, recompute: bool) -> Tensor:
        """[T, 3, H, W] uint8 -> [T, n, W]."""
        weight = self.tower.embeddings.patch_embedding.weight
        # the order and the precisions of transformers' image processor
        pixels = tiles.double().mul(1 / 255).float().sub(0.5).div(0.5).to(weight.dtype)
        patches = self.tower.embeddings.patch_embedding(pixels).flatten(2).transpose(1, 2)
        placed = patches + self.tower.embeddings.position_embedding.weight
        # with other strides a product with weights that are trained differs in the last bit
        placed = placed.contiguous()
        if not (recompute and torch.is_grad_enabled()):
            return self.tower.encoder(inputs_embeds=placed).last_hidden_state
        for layer in self.tower.encoder.layers:
            placed = torch.utils.checkpoint.checkpoint(layer, placed, None, use_reentrant=False)
        return placed  # type: ignore[return-value]

    def blank(self, device: torch.device) -> dict[str, Any]:
        """The smallest image as inputs of a network, see `Network.blank`."""
        dot = Image.new("RGB", (1, 1))
        shown = PromptImage(*dot.size, self.tiling.count(*dot.size), self.tiling.rows(*dot.size))
        return {"images": self.tiling.cut(dot).to(device), "shown": (shown,)}

    def count(self, length: int, recompute: bool, size: int) -> tuple[float, float]:
        """See `Network.count_images`. A trained layer keeps, for each patch, 12 vectors of the
        tower's width, 2 of its MLP and a row of attention for each head, in float32 too."""
        sizes: Any = self.tower.config
        width, n = sizes.hidden_size, (sizes.image_size // sizes.patch_size) ** 2
        rows = sizes.num_attention_heads * n * (size if size >= 4 else 4 + size)
        layer = (12 * width + 2 * sizes.intermediate_size) * size + rows
        kept = sizes.num_hidden_layers * (width * size if recompute else layer)
        together = min(length, self.tiling.most_rows) if self.one_by_one else length
        projected = 3 * len(self.newline) * size * is_trained(self)
        return length * (kept * is_trained(self.tower) + projected), together * layer

    def _source(self, images: Tensor, states: Tensor) -> Tensor | None:
        if is_trained(self.tower):
            return images
        return states.detach() if is_trained(self) else None
