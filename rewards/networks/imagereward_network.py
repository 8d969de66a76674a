"""The network of ImageReward-v1.0 from transformers' BLIP, and the names its checkpoint has.

    score = (layers(text encoder's first state, which attends to the image's states) - MEAN) / STD

The published network is BLIP's own code. transformers' `BlipVisionModel` and `BlipTextModel` are
the same networks with other names (`rename_weight`). Sizes are read from the shapes of the weights;
a head is 64 wide in all of these networks.
"""

import math
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from mmrl.rewards.networks.checkpoints import fill_network

MEAN = 0.16717362830052426
STD = 1.0333394966054072
HEAD_WIDTH = 64
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
    """Image and prompt to a score.

    Args:
        vision: keyword arguments of transformers' `BlipVisionConfig`.
        text: of `BlipTextConfig`.
    """

    def __init__(self, vision: Mapping[str, Any], text: Mapping[str, Any]) -> None:
        super().__init__()
        from transformers import BlipTextConfig, BlipTextModel, BlipVisionConfig, BlipVisionModel

        self.vision = BlipVisionModel(BlipVisionConfig(**vision))
        self.text = BlipTextModel(BlipTextConfig(**text), add_pooling_layer=False)
        self.layers = build_score_layers(text["hidden_size"])

    def features(self, pixels: Tensor, tokens: Tensor, attend: Tensor) -> Tensor:
        """[b, D] of images [b, 3, H, W] and prompts [b, T], `attend` [b, T] being 0 at padding."""
        seen = self.vision(pixel_values=pixels).last_hidden_state
        read = self.text(input_ids=tokens, attention_mask=attend, encoder_hidden_states=seen)
        return read.last_hidden_state[:, 0]

    def score(self, features: Tensor) -> Tensor:
        """[b] float32."""
        return (self.layers(features.float())[:, 0] - MEAN) / STD


def build_network(weights: Mapping[str, Tensor], what: str) -> ImageRewardNetwork:
    """The network that published weights belong to, filled with them; `what` begins messages.

    Raises:
        ValueError: weights are missing, unknown, or of no such network.
    """
    try:
        network = ImageRewardNetwork(_vision_sizes(weights), _text_sizes(weights))
    except (KeyError, IndexError, AttributeError, ZeroDivisionError) as error:
        raise ValueError(f"{what} holds no ImageReward network: {error!r}") from error
    ours = {rename_weight(name): value for name, value in weights.items()}
    ours.pop(None, None)
    fill_network(network, ours, f"{what} is no ImageReward network")  # type: ignore[arg-type]
    return network


def _vision_sizes(weights: Mapping[str, Tensor]) -> dict[str, Any]:
    patch = weights[f"{_VISION}patch_embed.proj.weight"].shape[-1]
    positions, width = weights[f"{_VISION}pos_embed"].shape[1:]
    return {
        "hidden_size": width,
        "intermediate_size": weights[f"{_VISION}blocks.0.mlp.fc1.weight"].shape[0],
        "num_hidden_layers": _layers(weights, f"{_VISION}blocks."),
        "num_attention_heads": width // HEAD_WIDTH,
        "image_size": math.isqrt(positions - 1) * patch,
        "patch_size": patch,
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-6,
    }


def _text_sizes(weights: Mapping[str, Tensor]) -> dict[str, Any]:
    words, width = weights[f"{_TEXT}embeddings.word_embeddings.weight"].shape
    positions = weights[f"{_TEXT}embeddings.position_embeddings.weight"].shape[0]
    layer = f"{_TEXT}encoder.layer.0"
    return {
        "vocab_size": words,
        "hidden_size": width,
        "encoder_hidden_size": weights[f"{layer}.crossattention.self.key.weight"].shape[1],
        "intermediate_size": weights[f"{layer}.intermediate.dense.weight"].shape[0],
        "num_hidden_layers": _layers(weights, f"{_TEXT}encoder.layer."),
        "num_attention_heads": width // HEAD_WIDTH,
        "max_position_embeddings": positions,
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-12,
        # Builds the attention to the image; the mask stays bidirectional, as published.
        "is_decoder": True,
    }


def _layers(weights: Mapping[str, Tensor], prefix: str) -> int:
    """Layers whose names begin with the prefix and a number."""
    return len({n[len(prefix) :].partition(".")[0] for n in weights if n.startswith(prefix)})
