"""The network of PickScore as the two towers of a reward."""

from typing import Any

from torch import Tensor, nn


class Towers(nn.Module):
    """A CLIPModel of transformers by the names open_clip has for its towers."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network

    def encode_image(self, pixels: Tensor) -> Tensor:
        pooled = self.network.vision_model(pixel_values=pixels).pooler_output
        return self.network.visual_projection(pooled)

    def encode_text(self, tokens: Tensor) -> Tensor:
        # Attention is causal and the features are those of the end token: padding plays no part.
        pooled = self.network.text_model(input_ids=tokens).pooler_output
        return self.network.text_projection(pooled)
