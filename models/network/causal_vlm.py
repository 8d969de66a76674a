"""A causal model of transformers that sees, Qwen2.5-VL or Qwen3-VL, as a network.

Images of prompts are named tensors: `pixel_values` and `image_grid_thw` as the checkpoint's
processor makes them, and `image_of` [n] int64, the image of each of the n places of images in the
order of rows and columns; an image that several rows show is encoded once. Where a row shows one,
its columns have the id of the image token, and positions have three axes.
"""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from mmrl.models.network.causal_lm import CausalCache, CausalLM
from mmrl.models.network.core import zero_gradients
from mmrl.models.network.token_network import is_trained


class CausalVLM(CausalLM):
    """The decoder with its vision tower, which is frozen unless `train_tower` is called; what
    projects its states is trained. All processes that share weights show images, or none does."""

    decoder, tower = "body.language_model", "body.visual"

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self.image_id: int = model.config.image_token_id
        self.train_tower(False)

    @property
    def image_encoder(self) -> Any:
        return self.body.visual

    def train_tower(self, trained: bool) -> None:
        """Train or freeze the vision tower; its projections always are trained."""
        for name, weight in self.body.visual.named_parameters():
            weight.requires_grad_(trained or "merger" in name)

    def blank(self) -> list[Mapping[str, Any]]:
        """See `Network.blank`: of an image of one token, and of tokens alone."""
        tower, [tokens] = self.body.visual, super().blank()
        side = tower.spatial_merge_size
        sizes = tower.config
        values = sizes.in_channels * sizes.temporal_patch_size * sizes.patch_size**2
        features = {
            "pixel_values": torch.zeros(side * side, values, device=self.device),
            "image_grid_thw": torch.tensor([[1, side, side]], device=self.device),
            "image_of": torch.zeros(1, dtype=torch.long, device=self.device),
        }
        row = torch.full_like(tokens["input_ids"], self.image_id)
        return [{"input_ids": row, "features": features}, tokens]

    def count_images(self, length: int, recompute: bool, size: int) -> tuple[float, float]:
        """For each patch, a trained block keeps 12 vectors of the tower's width and its MLP,
        and a trained merger 4. No block is computed again; rotary embeddings are float32."""
        tower, sizes = self.body.visual, self.body.visual.config
        width, patches = sizes.hidden_size, length * tower.spatial_merge_size**2
        matrices = sum(weight.ndim == 2 for weight in tower.blocks[0].mlp.parameters())
        block = 12 * width + 2 * (matrices - 1) * sizes.intermediate_size
        kept = sizes.depth * block * is_trained(tower.blocks)
        mergers = [tower.merger, *getattr(tower, "deepstack_merger_list", ())]
        kept += 4 * width * sum(map(is_trained, mergers))
        return patches * kept * size, patches * (4 * size + 32) * width

    def _read(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None,
        places: Tensor | None,
        cache: CausalCache | None,
        features: Mapping[str, Tensor] | None = None,
    ) -> Tensor:
        """See `CausalLM._read`; `features`: images of the rows, see above."""
        seen: dict[str, Any] = {}
        if features is not None:
            # [3, B, L], and what to add to a column after them for its position [B, 1]
            places, shift = self.body.get_rope_index(
                input_ids,
                mm_token_type_ids=(input_ids == self.image_id).int(),
                image_grid_thw=features["image_grid_thw"][features["image_of"]],
                attention_mask=attention_mask,
            )
            seen["mm_encoder_outputs"] = {"image": self._encode(features)}
            if cache is not None:
                cache.shift = shift
        elif cache is not None and cache.shift is not None:
            if places is None:
                places = torch.arange(input_ids.shape[1], device=input_ids.device) + cache.length
            places = (places + cache.shift).expand(3, *input_ids.shape)
        x = super()._read(input_ids, attention_mask, places, cache, **seen)
        if features is None and torch.is_grad_enabled():
            x = x + zero_gradients(self.body.visual)
        return x

    def _encode(self, features: Mapping[str, Tensor]) -> SimpleNamespace:
        """What transformers' model reads of its tower, at every place of an image."""
        pixels, grids = features["pixel_values"], features["image_grid_thw"]
        found, order = self.body.get_image_features(pixels, grids), features["image_of"].tolist()
        layers = getattr(found, "deepstack_features", ())
        return SimpleNamespace(
            pooler_output=[found.pooler_output[n] for n in order],
            deepstack_features=[[layer[n] for n in order] for layer in layers],
        )
