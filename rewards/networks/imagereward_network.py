"""The network of ImageReward-v1.0 from transformers' BLIP, and the names its checkpoint has.

    score = (layers(text encoder's first state, which attends to the image's states) - MEAN) / STD

The published network is BLIP's own code. transformers' `BlipVisionModel` and `BlipTextModel` are
the same networks with other names (`rename_weight`).
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from mmrl.rewards.networks.checkpoints import fill_network

MEAN = 0.16717362830052426
STD = 1.0333394966054072
VISION: dict[str, Any] = {
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "image_size": 224,
    "patch_size": 16,
    "layer_norm_eps": 1e-6,
}
"""Sizes of BLIP's ViT-L/16."""
TEXT: dict[str, Any] = {
    "encoder_hidden_size": 1024,
    "num_attention_heads": 12,
    # Builds the attention to the image; the mask stays bidirectional, as published.
    "is_decoder": True,
}
"""Of its text encoder; the others are the defaults of transformers, those of BERT's base."""
SIZES = (1024, 128, 64, 16, 1)

UNUSED = ("blip.vision_proj.", "blip.text_proj.", "blip.text_encoder.embeddings.position_ids")
"""BLIP's heads for its own training, and a constant that older releases stored."""
_VISION, _TEXT = "blip.visual_encoder.", "blip.text_encoder."
_VISION_NAMES = {
    ".cls_token": ".embeddings.class_embedding",
    ".pos_embed": ".embeddings.position_embedding",
    ".patch_embed.proj.": ".embeddings.patch_embedding.",
    ".blocks.": ".encoder.layers.",
    ".norm1.": ".layer_norm1.",
    ".norm2.": ".layer_norm2.",
    ".attn.qkv.": ".self_attn.qkv.",
    ".attn.proj.": ".self_attn.projection.",
    ".norm.": ".post_layernorm.",
}


def rename_weight(published: str) -> str | None:
    """The name of a published weight here; None for what is not used. Unknown names stay."""
    if published.startswith(UNUSED):
        return None
    if not published.startswith(_VISION):
        return published.replace(_TEXT, "text.").replace("mlp.layers.", "layers.")
    name = published.replace(_VISION, "vision.")
    for theirs, ours in _VISION_NAMES.items():
        name = name.replace(theirs, ours)
    return name


def build_score_layers(width: int) -> nn.Sequential:
    """The five layers from features [n, width] to a score in LAION's aesthetic predictor and
    ImageReward, at their published indices 0, 2, 4, 6 and 7.

    Both are published with dropout and without activations in between, so at scoring time they are
    one affine map. They are separate layers because the checkpoints have separate weights.
    """
    linear = [nn.Linear(a, b) for a, b in zip((width, *SIZES), SIZES, strict=False)]
    dropout = [nn.Dropout(share) for share in (0.2, 0.2, 0.1)]
    paired = [layer for pair in zip(linear, dropout, strict=False) for layer in pair]
    return nn.Sequential(*paired, *linear[3:])


class ImageRewardNetwork(nn.Module):
    """Image and prompt to a score."""

    def __init__(self) -> None:
        super().__init__()
        from transformers import BlipTextConfig, BlipTextModel, BlipVisionConfig, BlipVisionModel

        text = BlipTextConfig(**TEXT)
        self.vision = BlipVisionModel(BlipVisionConfig(**VISION))
        self.text = BlipTextModel(text, add_pooling_layer=False)
        self.layers = build_score_layers(text.hidden_size)

    def features(self, pixels: Tensor, tokens: Tensor, attend: Tensor) -> Tensor:
        """[b, D] of images [b, 3, H, W] and prompts [b, T], `attend` [b, T] being 0 at padding."""
        seen = self.vision(pixel_values=pixels).last_hidden_state
        read = self.text(input_ids=tokens, attention_mask=attend, encoder_hidden_states=seen)
        return read.last_hidden_state[:, 0]

    def score(self, features: Tensor) -> Tensor:
        """[b] float32."""
        return (self.layers(features.float())[:, 0] - MEAN) / STD


def build_network(weights: Mapping[str, Tensor], what: str) -> ImageRewardNetwork:
    """The network, filled with published weights; `what` begins messages. Raises ValueError:
    weights are missing, unknown, or of other shapes."""
    network = ImageRewardNetwork()
    ours = {rename_weight(name): value for name, value in weights.items()}
    ours.pop(None, None)
    fill_network(network, ours, f"{what} is no ImageReward network")  # type: ignore[arg-type]
    return network
